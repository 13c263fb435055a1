//! Commands as the input of `nft -j -f -`. Pure.

use std::fmt::{self, Write};

use serde_json::Value;

/// Commands that are one transaction, as text: of a large one only a command at a time is a tree of values, which takes
/// some forty times as much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Without its end.
    text: String,
}

impl Transaction {
    /// Makes one without commands.
    pub(crate) fn new() -> Self {
        Self { text: r#"{"nftables":[{"metainfo":{"json_schema_version":1}}"#.to_owned() }
    }

    /// Appends a command.
    pub(crate) fn push(&mut self, command: &Value) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, ",{command}");
    }

    /// Returns it as a tree of values.
    #[cfg(test)]
    pub(crate) fn to_tree(&self) -> Value {
        serde_json::from_str(&self.to_string()).unwrap()
    }
}

impl Extend<Value> for Transaction {
    fn extend<I: IntoIterator<Item = Value>>(&mut self, commands: I) {
        for command in commands {
            self.push(&command);
        }
    }
}

impl FromIterator<Value> for Transaction {
    fn from_iter<I: IntoIterator<Item = Value>>(commands: I) -> Self {
        let mut transaction = Self::new();
        transaction.extend(commands);
        transaction
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}]}}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_are_in_order_behind_the_version() {
        let commands = [json!({"add": {"table": {"name": "\"quoted\""}}}), json!({"delete": null})];
        let read = commands.iter().cloned().collect::<Transaction>().to_tree();
        let version = json!({"metainfo": {"json_schema_version": 1}});
        assert_eq!(read, json!({"nftables": [version, commands[0], commands[1]]}));
        assert_eq!(Transaction::new().to_tree(), json!({"nftables": [version]}));
    }
}
