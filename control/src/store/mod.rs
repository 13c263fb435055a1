//! Where objects live.
