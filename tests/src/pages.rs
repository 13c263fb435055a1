//! Commands that the pages of the documentation show: taken from there to be run, and what the page shows of their output
//! compared with what they say.

use anyhow::Context;

/// Returns the lines of a page's block below this command that real output lacks. What differs from run to run counts for
/// nothing: what is quoted, in brackets or behind a colon, addresses, numbers and names with a hyphen.
///
/// # Panics
/// If the page shows no such command.
#[must_use]
pub fn missing(page: &str, shown: &str, output: &str) -> Vec<String> {
    missing_below(page, &format!("$ {shown}"), output)
}

/// The same of a block with this line in the place of a command.
///
/// # Panics
/// If the page shows no such line.
#[must_use]
pub fn missing_below(page: &str, first: &str, output: &str) -> Vec<String> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(first));
    assert!(lines.next().is_some(), "the page does not show `{first}`");
    let block = lines.take_while(|line| !line.starts_with("```") && !line.starts_with("$ "));
    let said: Vec<String> = output.lines().map(skeleton).collect();
    block.filter(|line| !said.contains(&skeleton(line))).map(str::to_owned).collect()
}

/// Returns the words of the command in a page's blocks that begins so, as a reader would type it: without prompt and comment.
///
/// # Errors
/// If the page has no such command.
pub fn command(page: &str, begins: &str) -> anyhow::Result<Vec<String>> {
    let text = read(page)?;
    let lines = text.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let is_meant = |line: &&str| {
        line.strip_prefix(begins).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    let line = lines.into_iter().find(is_meant).with_context(|| format!("{page} shows no `{begins}`"))?;
    let line = line.split(" #").next().unwrap_or_default();
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// What stays the same of a line.
fn skeleton(line: &str) -> String {
    let fixed = line.split([':', '"', '(', '[']).next().unwrap_or_default();
    let is_name = |word: &str| word.contains('-') || word.chars().any(|c| c.is_ascii_digit());
    let words = fixed.split_whitespace().map(|word| match word {
        // Somebody else's cluster is one to warn of.
        "⚠" => "✓",
        name if is_name(name) => "*",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns what a page says, by its path in the repository.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &str) -> anyhow::Result<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Ok(std::fs::read_to_string(root.join(path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_their_beginning() {
        let page = "docs/operations/high-availability.md";
        assert_eq!(command(page, "trieste drain gw2").unwrap(), ["trieste", "drain", "gw2"]);
        assert_eq!(command(page, "trieste drain gw2 --undo").unwrap(), ["trieste", "drain", "gw2", "--undo"]);
        assert!(command(page, "trieste dra").is_err());
    }

    #[test]
    fn names_and_numbers_differ_and_words_do_not() {
        let page = "text\n```\n$ trieste join x\n ✓ Objects: 31 created\n ✓ Gateway west-worker is active\n ✓ gone\n```\n✓ not";
        let said = " ✓ Objects: 7 created, 1 changed\n ✓ Gateway gw-1 is active\n more";
        assert_eq!(missing(page, "trieste join", said), [" ✓ gone"]);
    }
}
