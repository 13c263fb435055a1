//! Arguments in the form of Go's programs: one dash or two, a value behind `=` or in the next argument.

use std::ffi::OsString;

use anyhow::{Context as _, bail};

/// What was given for a flag.
pub(crate) struct Given<'a> {
    flag: &'a str,
    value: Option<&'a str>,
    rest: &'a mut dyn Iterator<Item = String>,
}

impl Given<'_> {
    /// Returns the flag's value; it may be the next argument.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn text(&mut self) -> anyhow::Result<String> {
        let value = self.value.map(str::to_owned).or_else(|| self.rest.next());
        value.with_context(|| format!("-{} needs a value", self.flag))
    }

    /// Returns whether a flag without a value, or with one behind `=`, is on.
    pub(crate) fn is_on(&self) -> bool {
        self.value.is_none_or(|value| value == "true")
    }
}

/// Parses arguments; `take` is given each flag's name, without dashes, and what was given for it.
///
/// # Errors
/// An argument that is no flag, and what `take` returns.
pub(crate) fn parse(
    arguments: &[OsString],
    mut take: impl FnMut(&str, &mut Given<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut rest = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            bail!("cannot use argument {argument}: flags begin with a dash");
        };
        let (flag, value) = flag.split_once('=').map_or((flag, None), |(flag, value)| (flag, Some(value)));
        take(flag, &mut Given { flag, value, rest: &mut rest })?;
    }
    Ok(())
}
