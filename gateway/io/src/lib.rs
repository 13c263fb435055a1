//! TUN and UDP with segmentation offload.
