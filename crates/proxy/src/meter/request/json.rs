//! Parses JSON that can be read in one way only, and writes it again without touching what was not changed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

use super::error::{BadRequest, printable};
use super::token_estimate::is_same_name;

/// A body of this many values takes some hundred megabytes of memory; no conversation needs as many.
const MAX_VALUES: u32 = 1_000_000;

/// Parses an object, and refuses a name that appears twice in any object: parsers differ in which one they take.
pub(super) fn parse_strict_object(body: &[u8]) -> Result<Map<String, Value>, BadRequest> {
    let watch = StrictJsonState { values_left: Cell::new(MAX_VALUES), duplicate: RefCell::new(None) };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = StrictJsonSeed(&watch).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match read {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(BadRequest::NotJson { line: 1, column: 1 }),
        Err(error) => Err(match watch.duplicate.take() {
            Some(name) => BadRequest::Twice { name: printable(&name) },
            None if watch.values_left.get() == 0 => BadRequest::TooMany { most: MAX_VALUES },
            None => BadRequest::NotJson { line: error.line(), column: error.column() },
        }),
    }
}

/// The state of parsing.
#[derive(Debug)]
struct StrictJsonState {
    values_left: Cell<u32>,
    duplicate: RefCell<Option<String>>,
}

impl StrictJsonState {
    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        self.values_left.set(self.values_left.get().saturating_sub(1));
        if self.values_left.get() == 0 { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

#[derive(Debug, Clone, Copy)]
struct StrictJsonSeed<'w>(&'w StrictJsonState);

impl<'de> DeserializeSeed<'de> for StrictJsonSeed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJsonSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            match values.entry(name) {
                Entry::Vacant(free) => {
                    free.insert(map.next_value_seed(self)?);
                }
                Entry::Occupied(known) => {
                    *self.0.duplicate.borrow_mut() = Some(known.key().clone());
                    return Err(A::Error::custom("a name appears twice"));
                }
            }
        }
        Ok(Value::Object(values))
    }
}

/// The fields of an object: as they were written, or replaced.
#[derive(Debug)]
pub(super) struct EditableJson<'t> {
    text: &'t [u8],
    fields: Vec<(String, EditableField)>,
}

#[derive(Debug)]
enum EditableField {
    Original(Range<usize>),
    Replaced(Value),
}

impl<'t> EditableJson<'t> {
    /// Takes the text of an object that [`parse_strict_object`] has parsed.
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, fields: field_spans(text) }
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let (_, part) = self.fields.iter().find(|(own, _)| own == name)?;
        match part {
            EditableField::Original(range) => serde_json::from_slice(self.text.get(range.clone())?).ok(),
            EditableField::Replaced(value) => Some(value.clone()),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        match self.fields.iter_mut().find(|(own, _)| own == name) {
            Some((_, part)) => *part = EditableField::Replaced(value),
            None => self.fields.push((name.to_owned(), EditableField::Replaced(value))),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.retain(|own| own != name);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.fields.retain(|(name, _)| keep(name));
    }

    /// Returns the spelling that a field has here, where the provider accepts any.
    pub(super) fn find_spelling(&self, wanted: &str) -> Option<String> {
        self.fields.iter().find(|(name, _)| is_same_name(name, wanted)).map(|(name, _)| name.clone())
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.text.len() + 64);
        out.push(b'{');
        for (n, (name, part)) in self.fields.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_json(&mut out, name);
            out.push(b':');
            match part {
                EditableField::Original(range) => {
                    out.extend_from_slice(self.text.get(range.clone()).unwrap_or_default());
                }
                EditableField::Replaced(value) => write_json(&mut out, value),
            }
        }
        out.push(b'}');
        out
    }
}

fn write_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("there is room for it in memory, and its names are texts");
}

/// Finds the fields of an object whose text is known to be JSON.
fn field_spans(text: &[u8]) -> Vec<(String, EditableField)> {
    // As many as most requests have.
    let mut found = Vec::with_capacity(16);
    let mut at = after_space(text, 0) + 1;
    loop {
        at = after_space(text, at);
        if text.get(at) != Some(&b'"') {
            break;
        }
        let end = after_string(text, at);
        let Some(name) = text.get(at..end).and_then(|name| serde_json::from_slice(name).ok()) else { break };
        at = after_space(text, after_space(text, end) + 1);
        let value = at..after_value(text, at);
        at = after_space(text, value.end) + 1;
        found.push((name, EditableField::Original(value)));
    }
    found
}

fn after_space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Returns the end of the string that begins at `at`; `at` itself if there is none.
fn after_string(text: &[u8], at: usize) -> usize {
    if text.get(at) != Some(&b'"') {
        return at;
    }
    let mut end = at + 1;
    while let Some(byte) = text.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    text.len()
}

fn after_value(text: &[u8], at: usize) -> usize {
    let mut depth = 0u32;
    let mut end = at;
    while let Some(byte) = text.get(end) {
        match byte {
            b'"' => end = after_string(text, end),
            b'{' | b'[' => {
                depth += 1;
                end += 1;
            }
            b'}' | b']' if depth == 0 => break,
            b'}' | b']' => {
                depth -= 1;
                end += 1;
            }
            byte if depth == 0 && (*byte == b',' || byte.is_ascii_whitespace()) => break,
            _ => end += 1,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        parse_strict_object(text.as_bytes()).expect("an object");
        assert_eq!(String::from_utf8(EditableJson::new(text.as_bytes()).write()).expect("text"), want);
    }

    #[test]
    fn unchanged_fields_are_kept_byte_for_byte() {
        check("{}", "{}");
        check(" {\n} ", "{}");
        check(
            r#" { "b" : 1.00e+2 , "a":[ 1, {"x":"}]\\\"" } ],"\u0041\"":"\u00e9" ,"n":null} "#,
            r#"{"b":1.00e+2,"a":[ 1, {"x":"}]\\\"" } ],"A\"":"\u00e9","n":null}"#,
        );
        let mut body = EditableJson::new(br#"{"a":1,"b":12345678901234567890123,"c":[]}"#);
        body.remove("a");
        body.set("c", 3.into());
        body.set("d", "x".into());
        assert_eq!(body.get("d"), Some("x".into()));
        assert_eq!(body.get("c"), Some(3.into()));
        assert_eq!(body.get("a"), None);
        assert_eq!(body.write(), br#"{"b":12345678901234567890123,"c":3,"d":"x"}"#);
    }

    #[test]
    fn ambiguous_json_is_refused() {
        let twice = |name: &str| BadRequest::Twice { name: name.to_owned() };
        for (text, want) in [
            ("", BadRequest::NotJson { line: 1, column: 0 }),
            ("[]", BadRequest::NotJson { line: 1, column: 1 }),
            ("{} {}", BadRequest::NotJson { line: 1, column: 4 }),
            ("{\"a\":1,}", BadRequest::NotJson { line: 1, column: 8 }),
            (r#"{"a":"\ud800"}"#, BadRequest::NotJson { line: 1, column: 13 }),
            (r#"{"a":1,"a":1}"#, twice("a")),
            (r#"{"a":1,"\u0061":1}"#, twice("a")),
            (r#"{"m":[{"x":{"type":1,"type":1}}]}"#, twice("type")),
        ] {
            assert_eq!(parse_strict_object(text.as_bytes()), Err(want), "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(200));
        assert!(matches!(parse_strict_object(deep.as_bytes()), Err(BadRequest::NotJson { .. })));
        let many = format!("{{\"a\":[{}1]}}", "1,".repeat(1_000_000));
        assert_eq!(parse_strict_object(many.as_bytes()), Err(BadRequest::TooMany { most: MAX_VALUES }));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}|[\"\\\\,:{}\\[\\] ]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("\\PC{0,3}|[\"\\\\,:{}]{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_read_and_written_back(value in value(), pretty in any::<bool>()) {
            let value = serde_json::json!({"x": value, "\"y": 1});
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            let read = parse_strict_object(text.as_bytes()).expect("an object");
            prop_assert_eq!(&Value::Object(read), &value);
            let written = EditableJson::new(text.as_bytes()).write();
            prop_assert_eq!(serde_json::from_slice::<Value>(&written).expect("JSON"), value);
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}|[{}\\[\\]\",:\\\\ a1]{0,30}") {
            let _ = parse_strict_object(text.as_bytes());
            let _ = EditableJson::new(text.as_bytes()).write();
        }
    }
}
