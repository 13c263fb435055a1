//! Fields, and what is wrong with them.

use ipnet::IpNet;

/// The most characters of a reason: it quotes what was written.
const LONGEST: usize = 1024;

/// A field that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    /// The field's path.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl FieldError {
    /// Returns the error of a field.
    #[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
    pub(super) fn new(field: &'static str, reason: impl ToString) -> Self {
        Self { field, reason: reason.to_string().chars().take(LONGEST).collect() }
    }
}

/// Reads CIDRs that commas separate, host bits cleared; none where the field is missing.
pub(super) fn cidrs(field: &'static str, text: Option<&str>) -> Result<Vec<IpNet>, FieldError> {
    let words = text.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
    let read = |word: &str| {
        word.parse::<IpNet>()
            .map(|net| net.trunc())
            .map_err(|_| FieldError::new(field, format!("`{word}` is no CIDR")))
    };
    words.map(read).collect()
}
