//! The packet path between TUN and cables, without IO.
