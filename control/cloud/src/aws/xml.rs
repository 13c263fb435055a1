//! XML as a tree of elements with text: attributes, comments and name spaces mean nothing in EC2's answers.

use quick_xml::Reader;
use quick_xml::events::Event;

/// Ours: how deep elements may be inside of one another. EC2's answers have eight levels.
const MOST_LEVELS: usize = 64;

/// An element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Element {
    name: String,
    text: String,
    children: Vec<Self>,
}

impl Element {
    /// Parses a document and returns its root.
    ///
    /// # Errors
    /// Why it is no XML.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader::from_str(text);
        let mut open = vec![Self::default()];
        loop {
            let event = reader.read_event().map_err(|error| error.to_string())?;
            match event {
                Event::Start(tag) => {
                    if open.len() > MOST_LEVELS {
                        return Err(format!("elements are more than {MOST_LEVELS} levels deep"));
                    }
                    open.push(Self::named(tag.local_name().as_ref()));
                }
                Event::Empty(tag) => add(&mut open, Self::named(tag.local_name().as_ref())),
                Event::End(_) => {
                    if let Some(element) = open.pop() {
                        add(&mut open, element);
                    }
                }
                Event::Text(text) => {
                    append(&mut open, &text);
                }
                Event::CData(data) => {
                    append(&mut open, &data);
                }
                Event::GeneralRef(reference) => append(&mut open, &resolve(&reference)?),
                Event::Eof => break,
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        if open.len() > 1 {
            return Err("it ends within an element".to_owned());
        }
        let roots = open.pop().map(|document| document.children).unwrap_or_default();
        roots.into_iter().next().ok_or_else(|| "it has no element".to_owned())
    }

    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text of the element at a path of names; empty if there is none.
    pub(super) fn text(&self, path: &str) -> &str {
        let mut found = self;
        for name in path.split('/') {
            let Some(child) = found.children.iter().find(|child| child.name == name) else { return "" };
            found = child;
        }
        found.text.trim()
    }

    /// Returns the elements `item` of the list at a path of names.
    pub(super) fn items<'e>(&'e self, path: &str) -> impl Iterator<Item = &'e Self> + use<'e> {
        let mut found = Some(self);
        for name in path.split('/') {
            found = found.and_then(|element| element.children.iter().find(|child| child.name == name));
        }
        found.into_iter().flat_map(|list| list.children.iter()).filter(|child| child.name == "item")
    }

    /// Returns the first element of a name, however deep.
    pub(super) fn find(&self, name: &str) -> Option<&Self> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(name))
    }
}

fn add(open: &mut [Element], element: Element) {
    if let Some(parent) = open.last_mut() {
        parent.children.push(element);
    }
}

fn append(open: &mut [Element], text: &str) {
    if let Some(parent) = open.last_mut() {
        parent.text.push_str(text);
    }
}

/// Resolves `&amp;` and its like, and references to characters; others are of document types, which are not read.
fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.to_string());
    }
    let name: &str = reference;
    let resolved = quick_xml::escape::resolve_predefined_entity(name);
    resolved.map(str::to_owned).ok_or_else(|| format!("the entity &{name}; is not defined"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_texts_and_references_are_read() {
        let text = "<?xml version=\"1.0\"?><a:R xmlns:a=\"x\"><!-- no --><set><item><k>one &amp; t&#119;o</k><e/></item><item><k><![CDATA[<3>]]></k></item></set></a:R>";
        let root = Element::parse(text).unwrap();
        assert_eq!(root.name(), "R");
        let keys: Vec<&str> = root.items("set").map(|item| item.text("k")).collect();
        assert_eq!(keys, ["one & two", "<3>"]);
        assert_eq!((root.text("set/none"), root.items("none").count()), ("", 0));
        assert_eq!(root.find("k").map(|k| k.text.as_str()), Some("one & two"));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let deep = "<a>".repeat(100_000);
        for text in ["", "text", "<a>", "<a></b>", "<a>&x;</a>", &deep] {
            assert!(Element::parse(text).is_err(), "{}", text.len());
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[<>/a-c&;! \\[\\]\"=#x0-9]{0,80}") {
            let _ = Element::parse(&text);
        }
    }
}
