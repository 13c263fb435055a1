//! What a command in a pod answers, before anybody believes it. Sans-IO.

use serde::de::DeserializeOwned;

/// Longest line in bytes that is read of a watch.
const MAX_LINE: usize = 64 << 10;

/// Text of somebody's error, in one line for people.
pub(super) fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
    let line = line.strip_prefix("error: ").unwrap_or(line);
    line.chars().filter(|c| !c.is_control()).take(400).collect()
}

/// Reads a document; what cannot be read is explained.
pub(super) fn document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        format!("its answer cannot be read ({error}); are the command and the image of the same version?")
    })
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
    skipping: bool,
}

impl Lines {
    /// Takes bytes in and gives the lines that they end. A line that is too long is left out.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_end = piece.ends_with(b"\n");
            if !self.skipping && self.rest.len() + piece.len() <= MAX_LINE {
                self.rest.extend_from_slice(piece);
            } else {
                self.skipping = true;
                self.rest.clear();
            }
            if is_end {
                let line = std::mem::take(&mut self.rest);
                if !std::mem::take(&mut self.skipping) {
                    lines.push(line);
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::default();
        assert!(lines.take(b"ab").is_empty());
        assert_eq!(lines.take(b"c\nd\ne"), [b"abc\n".to_vec(), b"d\n".to_vec()]);
        assert_eq!(lines.take(b"\n"), [b"e\n".to_vec()]);
    }

    #[test]
    fn a_line_without_end_takes_no_room() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            assert!(lines.take(&[b'x'; 10_000]).is_empty());
            assert!(lines.rest.len() <= MAX_LINE);
        }
        assert_eq!(lines.take(b"\nok\n"), [b"ok\n".to_vec()]);
    }

    #[test]
    fn an_error_is_one_printable_line() {
        assert_eq!(first_line(b"\n error: no\x1b[2J way\nmore"), "no[2J way");
        assert_eq!(first_line(b""), "no reason given");
    }
}
