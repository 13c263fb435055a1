//! A capture as another implementation reads it.

use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::block_common::Block;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::opt_common::CommonOption;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) point: String,
    pub(super) bytes: Vec<u8>,
    pub(super) original_bytes: u32,
    pub(super) timestamp_ns: u128,
    pub(super) flags: u32,
    pub(super) lost: u64,
    pub(super) comment: String,
}

#[derive(Debug, Default)]
pub(super) struct Capture {
    /// Name, link type, snap length.
    pub(super) interfaces: Vec<(String, u32, u32)>,
    pub(super) frames: Vec<Frame>,
    /// Per statistics block: point, received, lost, comment.
    pub(super) statistics: Vec<(String, u64, u64, String)>,
}

impl Capture {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut reader = PcapNgReader::with_capacity(bytes, 1 << 20).unwrap();
        let mut capture = Self::default();
        while let Some(block) = reader.next_block() {
            let block = block.unwrap().0;
            if let Block::InterfaceDescription(block) = &block {
                capture.describe(block);
            } else if let Block::EnhancedPacket(block) = &block {
                capture.packet(block);
            } else if let Block::InterfaceStatistics(block) = &block {
                capture.count(block);
            } else {
                panic!("a block that we do not write: {block:?}");
            }
        }
        capture
    }

    /// The frames of one point.
    pub(super) fn at(&self, point: &str) -> Vec<&[u8]> {
        self.frames.iter().filter(|frame| frame.point == point).map(|frame| &frame.bytes[..]).collect()
    }

    fn describe(&mut self, block: &InterfaceDescriptionBlock<'_>) {
        assert_eq!(block.ts_resolution().resolution(), 9);
        for option in &block.options {
            if let InterfaceDescriptionOption::IfName(name) = option {
                self.interfaces.push((name.to_string(), u32::from(block.linktype), block.snaplen));
            }
        }
    }

    fn packet(&mut self, block: &EnhancedPacketBlock<'_>) {
        let mut frame = Frame {
            point: self.name(block.interface_id),
            bytes: block.data.to_vec(),
            original_bytes: block.original_len,
            timestamp_ns: block.timestamp.as_nanos(),
            ..Frame::default()
        };
        for option in &block.options {
            if let EnhancedPacketOption::Flags(flags) = option {
                frame.flags = *flags;
            } else if let EnhancedPacketOption::DropCount(lost) = option {
                frame.lost = *lost;
            } else if let EnhancedPacketOption::Common(CommonOption::Comment(text)) = option {
                frame.comment = text.to_string();
            }
        }
        self.frames.push(frame);
    }

    fn count(&mut self, block: &InterfaceStatisticsBlock<'_>) {
        let mut statistics = (self.name(block.interface_id), 0, 0, String::new());
        for option in &block.options {
            if let InterfaceStatisticsOption::IsbIfRecv(received) = option {
                statistics.1 = *received;
            } else if let InterfaceStatisticsOption::IsbIfDrop(lost) = option {
                statistics.2 = *lost;
            } else if let InterfaceStatisticsOption::Common(CommonOption::Comment(text)) = option {
                statistics.3 = text.to_string();
            }
        }
        self.statistics.push(statistics);
    }

    fn name(&self, interface: u32) -> String {
        self.interfaces[interface as usize].0.clone()
    }
}
