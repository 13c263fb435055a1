//! The gateway: workers, wiring, configuration, metrics, admin socket.
