//! Strict reading of JSON: I-JSON (RFC 7493), so that every reader behind us sees the same document.
//!
//! Numbers are never converted: `1e400` and 20-digit integers pass as they are. Strings are checked after their
//! escapes are resolved, names of members included.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Deepest nesting of objects and arrays that is read. Real events nest six deep.
pub const MAX_DEPTH: usize = 64;

/// What Tekton would expand again and again in a binding: it grows without bound in the shared listener.
const EXPANSION: &str = "$(tt.";

/// Why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", place(.path))]
pub struct JsonError {
    /// Where, as `subject.content.env`; empty for the document itself.
    pub path: String,
    /// What is wrong, in words for the client.
    pub reason: String,
}

fn place(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl JsonError {
    fn new(path: &str, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

/// The members of one object, in the order in which they came.
#[derive(Debug, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Node<'a>)>);

/// A value that was checked, as far as anybody reads it.
#[derive(Debug)]
enum Node<'a> {
    Null,
    Text(Cow<'a, str>),
    Object(Object<'a>),
    /// A number, a boolean or an array.
    Other,
}

impl<'a> Object<'a> {
    /// Reads a document whose root is an object, and checks all of it.
    ///
    /// # Errors
    /// Names the place and the fault.
    pub fn read(bytes: &'a [u8]) -> Result<Self, JsonError> {
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(JsonError::new("", "begins with a byte order mark"));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| JsonError::new("", format!("is not UTF-8 at byte {}", e.valid_up_to())))?;
        match check(text.trim_matches([' ', '\t', '\n', '\r']), &mut Vec::new(), 1)? {
            Node::Object(root) => Ok(root),
            _ => Err(JsonError::new("", "is not a JSON object")),
        }
    }

    /// The member; `None` when it is missing or `null`.
    fn get(&self, name: &str) -> Option<&Node<'a>> {
        let (_, node) = self.0.iter().find(|(n, _)| n == name)?;
        (!matches!(node, Node::Null)).then_some(node)
    }

    /// The member as an object; `None` when it is missing or `null`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn object(&self, name: &str, path: &str) -> Result<Option<&Self>, JsonError> {
        match self.get(name) {
            None => Ok(None),
            Some(Node::Object(object)) => Ok(Some(object)),
            Some(_) => Err(JsonError::new(path, "must be an object")),
        }
    }

    /// The member as text; empty when it is missing, `null` or empty.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(&self, name: &str, path: &str) -> Result<&str, JsonError> {
        match self.get(name) {
            None => Ok(""),
            Some(Node::Text(text)) => Ok(text),
            Some(_) => Err(JsonError::new(path, "must be a string")),
        }
    }

    /// Refuses names that differ only in case: readers that fold case would take either.
    ///
    /// # Errors
    /// Names both.
    pub fn refuse_case_twins(&self, path: &str) -> Result<(), JsonError> {
        // Upper then lower also folds 'ſ' to 's' and the Kelvin sign to 'k', as Go's decoder does.
        let fold = |name: &str| name.to_uppercase().to_lowercase();
        match twin(&self.0, str::eq_ignore_ascii_case, fold) {
            Some(name) => Err(JsonError::new(
                path,
                format!("has names that differ only in case from '{}'", short(name)),
            )),
            None => Ok(()),
        }
    }
}

/// The members of one object, unread.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some(name) = map.next_key_seed(Name)? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// A string that borrows from the document where it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

struct Elements<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Elements<'de>, A::Error> {
                let mut elements = Vec::new();
                while let Some(raw) = seq.next_element()? {
                    elements.push(raw);
                }
                Ok(Elements(elements))
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

/// Checks one value and all below it. Each level reads its part again, so the cost is bytes × depth, and the depth
/// is bounded.
fn check<'a>(raw: &'a str, path: &mut Vec<Cow<'a, str>>, depth: usize) -> Result<Node<'a>, JsonError> {
    match raw.as_bytes().first() {
        Some(b'{' | b'[') if depth > MAX_DEPTH => {
            Err(at(path, format!("is nested deeper than {MAX_DEPTH} levels")))
        }
        Some(b'{') => {
            let Members(members) = serde_json::from_str(raw).map_err(|e| at(path, words(&e)))?;
            if let Some(twice) = twin(&members, |a, b| a == b, str::to_owned) {
                return Err(at(path, format!("has the name '{}' twice", short(twice))));
            }
            let mut object = Vec::with_capacity(members.len());
            for (name, value) in members {
                refuse_expansion(&name, path)?;
                path.push(name);
                let node = check(value.get(), path, depth + 1)?;
                object.push((path.pop().unwrap_or_default(), node));
            }
            Ok(Node::Object(Object(object)))
        }
        Some(b'[') => {
            let Elements(elements) = serde_json::from_str(raw).map_err(|e| at(path, words(&e)))?;
            for element in elements {
                check(element.get(), path, depth + 1)?;
            }
            Ok(Node::Other)
        }
        Some(b'"') => {
            let text = string(raw).map_err(|e| at(path, words(&e)))?;
            refuse_expansion(&text, path)?;
            Ok(Node::Text(text))
        }
        Some(b'n') if raw == "null" => Ok(Node::Null),
        // What stands within an object or an array has been read with it.
        _ if depth > 1 => Ok(Node::Other),
        _ => serde_json::from_str::<&RawValue>(raw).map(|_| Node::Other).map_err(|e| at(path, words(&e))),
    }
}

/// A name that stands twice, where those are the same that `fold` makes equal. Of ASCII names `same` says as much, and
/// comparing few of them needs no table.
fn twin<'n, T>(
    members: &'n [(Cow<'_, str>, T)],
    same: impl Fn(&str, &str) -> bool,
    fold: impl Fn(&str) -> String,
) -> Option<&'n str> {
    const FEW: usize = 16;
    let names = || members.iter().map(|(name, _)| name.as_ref());
    if members.len() <= FEW && names().all(str::is_ascii) {
        return names()
            .enumerate()
            .find(|(n, name)| names().take(*n).any(|other| same(other, name)))
            .map(|t| t.1);
    }
    let mut seen = HashSet::with_capacity(members.len());
    names().find(|name| !seen.insert(fold(name)))
}

fn refuse_expansion(text: &str, path: &[Cow<'_, str>]) -> Result<(), JsonError> {
    if text.contains(EXPANSION) {
        return Err(at(path, format!("contains '{EXPANSION}', which Tekton would expand")));
    }
    Ok(())
}

/// An error at a place. The place is put into words only here, for an error: done for each value, a long name above
/// many small ones would be copied as many times.
fn at(path: &[Cow<'_, str>], reason: impl Into<String>) -> JsonError {
    let names: Vec<_> = path.iter().map(|name| short(name)).collect();
    JsonError::new(&short(&names.join(".")), reason)
}

/// The beginning of a text that a stranger chose: an answer is no echo.
fn short(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 100;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn string(raw: &str) -> serde_json::Result<Cow<'_, str>> {
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    let text = Name.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(text)
}

/// The parser's words, without the position inside a part, which would mislead.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("is not valid JSON: {text}")
}

/// Whether the text is a JSON object by the same rules; for embedded documents such as `configJson`.
#[must_use]
pub fn is_object(text: &[u8]) -> bool {
    Object::read(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &[u8]) -> String {
        Object::read(text).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
    }

    #[test]
    fn what_is_not_i_json_is_refused_with_a_reason() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        let deep = format!("{{\"a\":{deep}}}");
        let table: &[(&[u8], &str)] = &[
            (b"", "is not valid JSON"),
            (b"\xef\xbb\xbf{}", "byte order mark"),
            (b"{\"a\":\"\xff\"}", "is not UTF-8 at byte 6"),
            (br#"{"a":"\ud800"}"#, "a: is not valid JSON"),
            (br#"{"\ud800":1}"#, "is not valid JSON"),
            (br#"{"a":NaN}"#, "is not valid JSON"),
            (br#"{"a":1,"a":2}"#, "has the name 'a' twice"),
            (br#"{"a":1,"\u0061":2}"#, "has the name 'a' twice"),
            (br#"{"x":[{"y":{"a":1,"a":2}}]}"#, "x.y: has the name 'a' twice"),
            (br#"{} x"#, "is not valid JSON"),
            (br#"{"a":1,}"#, "is not valid JSON"),
            (b"{}\x0c", "is not valid JSON"),
            (br#""a" x"#, "is not valid JSON"),
            (br#"1 x"#, "is not valid JSON"),
            (br#"null"#, "is not a JSON object"),
            (br#"[1]"#, "is not a JSON object"),
            (br#""a""#, "is not a JSON object"),
            (br#"{"a":"$(tt.params.x)"}"#, "a: contains '$(tt.'"),
            (br#"{"a":["$\u0028tt.params.x)"]}"#, "a: contains '$(tt.'"),
            (br#"{"$(tt.x)":1}"#, "contains '$(tt.'"),
            (b"{\"a\":\"\n\"}", "is not valid JSON"),
            (deep.as_bytes(), "nested deeper than 64"),
        ];
        for (text, expected) in table {
            let got = reason(text);
            assert!(
                got.contains(expected),
                "{}: {got}",
                String::from_utf8_lossy(&text[..text.len().min(60)])
            );
        }
    }

    #[test]
    fn a_long_name_above_many_values_is_neither_copied_for_each_nor_echoed() {
        let name = "n".repeat(512 * 1024);
        let wide = format!("{{\"{name}\":[{}{{}}]}}", "{},".repeat(170_000));
        let started = std::time::Instant::now();
        assert_eq!(reason(wide.as_bytes()), "");
        // Some 90 GB would have been copied.
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        for text in [
            format!("{{\"{name}\":{{\"a\":1,\"a\":2}}}}"),
            format!("{{\"{name}\":1,\"{name}\":2}}"),
            format!("{}\"$(tt.\"{}", "{\"nnnnnnnnnn\":".repeat(60), "}".repeat(60)),
        ] {
            let got = reason(text.as_bytes());
            assert!(!got.is_empty() && got.len() < 300, "{} bytes", got.len());
        }
    }

    #[test]
    fn numbers_of_any_size_and_odd_but_valid_text_pass() {
        for text in [
            r#"{"a":1e400,"b":12345678901234567890123}"#,
            r#" {"a":"\ud83d\ude00","b":{},"c":[]} "#,
            r#"{"":""}"#,
        ] {
            assert_eq!(reason(text.as_bytes()), "", "{text}");
        }
    }

    #[test]
    fn names_that_differ_only_in_case_are_found_as_go_folds_them() {
        let many: String = (0..40).map(|n| format!("\"n{n}\":1,")).collect();
        for (text, twins) in [
            (&*format!("{{{many}\"N7\":1}}"), true),
            (&*format!("{{{many}\"N77\":1}}"), false),
            (r#"{"id":1,"ID":2}"#, true),
            ("{\"source\":1,\"\u{17f}ource\":2}", true),
            ("{\"k\":1,\"\u{212a}\":2}", true),
            (r#"{"id":1,"ids":2}"#, false),
        ] {
            let object = Object::read(text.as_bytes()).unwrap();
            assert_eq!(object.refuse_case_twins("").is_err(), twins, "{text}");
        }
    }
}
