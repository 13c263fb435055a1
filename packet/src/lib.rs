//! What a packet is: buffers, batches, wire formats, flow keys, drop reasons.
