//! What the pages of the documentation show of commands, compared with what these say.

/// Returns the lines of a page's block below this command that real output lacks. What differs from run to run counts for
/// nothing: what is quoted, in brackets or behind a colon, addresses, numbers and names with a hyphen.
///
/// # Panics
/// If the page shows no such command.
#[must_use]
pub fn missing(page: &str, shown: &str, output: &str) -> Vec<String> {
    let prompt = format!("$ {shown}");
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&prompt));
    assert!(lines.next().is_some(), "the page does not show `{shown}`");
    let block = lines.take_while(|line| !line.starts_with("```") && !line.starts_with("$ "));
    let said: Vec<String> = output.lines().map(skeleton).collect();
    block.filter(|line| !said.contains(&skeleton(line))).map(str::to_owned).collect()
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
    fn names_and_numbers_differ_and_words_do_not() {
        let page = "text\n```\n$ trieste join x\n ✓ Objects: 31 created\n ✓ Gateway west-worker is active\n ✓ gone\n```\n✓ not";
        let said = " ✓ Objects: 7 created, 1 changed\n ✓ Gateway gw-1 is active\n more";
        assert_eq!(missing(page, "trieste join", said), [" ✓ gone"]);
    }
}
