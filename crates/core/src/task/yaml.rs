//! Parses YAML into a tree whose every node knows its position in the source.
//!
//! The keys are read from this tree by hand and not by `serde`, so that one pass can report every mistake with its
//! span.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DefaultMessageFormatter, Location, MessageFormatter, Spanned};

use super::error::{TaskProblem, TaskProblemKind};
use crate::source_span::Span;
use crate::text;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlNode {
    pub value: YamlValue,
    pub span: Span,
    /// The scalar as written: `1.10` is a branch name before it is a number.
    pub raw: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum YamlValue {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlEntry {
    pub key: String,
    pub key_span: Span,
    pub node: YamlNode,
}

/// Parses the YAML inside `front`; an empty front matter is an empty map.
pub(super) fn parse(source: &str, front: Span) -> Result<Vec<YamlEntry>, TaskProblem> {
    let yaml = front.of(source);
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: 2_000,
            max_events: 8_000,
            max_depth: 8,
            max_aliases: 16,
            max_anchors: 16,
            max_documents: 1,
            max_total_scalar_bytes: super::MAX_FRONT_BYTES,
        },
        with_snippet: false,
    };
    let root: Option<Spanned<RawYaml>> =
        serde_saphyr::from_str_with_options(yaml, options).map_err(|error| yaml_problem(source, front, &error))?;
    let Some(root) = root else { return Ok(Vec::new()) };
    let node = node(source, front, root);
    match node.value {
        YamlValue::Null => Ok(Vec::new()),
        YamlValue::Map(entries) => Ok(entries),
        _ => Err(TaskProblem::new(
            TaskProblemKind::Syntax,
            source,
            node.span,
            "the front matter is not a list of `key: value`",
        )),
    }
}

fn yaml_problem(source: &str, front: Span, error: &serde_saphyr::Error) -> TaskProblem {
    let error = error.without_snippet();
    let span =
        error.location().map_or(Span::new(front.start, front.start), |location| location_span(source, front, location));
    let words = text::strip_control(&DefaultMessageFormatter.format_message(error)).replace('\n', " ");
    TaskProblem::new(
        TaskProblemKind::Syntax,
        source,
        span,
        format!("front matter is not YAML: {}", text::head(&words, 200)),
    )
}

/// Turns a location inside the front matter into a span of the whole source.
fn location_span(source: &str, front: Span, location: Location) -> Span {
    let clamp = |at: usize| {
        let mut at = at.min(front.end);
        while !source.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    if let (Some(offset), Some(len)) = (location.span().byte_offset(), location.span().byte_len()) {
        let start = front.start.saturating_add(count(offset));
        return Span::new(clamp(start), clamp(start.saturating_add(count(len))));
    }
    let (line, column) = (count(location.line()).max(1), count(location.column()).max(1));
    let yaml = front.of(source);
    let before: usize = yaml.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = yaml.get(before..).unwrap_or("");
    let within = rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at);
    let at = clamp(front.start + before + within);
    Span::new(at, at)
}

fn node(source: &str, front: Span, spanned: Spanned<RawYaml>) -> YamlNode {
    let span = location_span(source, front, spanned.referenced);
    let raw = location_span(source, front, spanned.defined).of(source).trim();
    let value = match spanned.value {
        RawYaml::Null => YamlValue::Null,
        RawYaml::Bool(flag) => YamlValue::Bool(flag),
        RawYaml::Int(number) => YamlValue::Int(number),
        RawYaml::Float(number) => YamlValue::Float(number),
        RawYaml::Text(text) => YamlValue::Text(text),
        RawYaml::List(items) => YamlValue::List(items.into_iter().map(|item| node(source, front, item)).collect()),
        RawYaml::Map(entries) => YamlValue::Map(
            entries
                .into_iter()
                .map(|(key, value)| YamlEntry {
                    key_span: location_span(source, front, key.referenced),
                    key: key.value,
                    node: node(source, front, value),
                })
                .collect(),
        ),
    };
    let raw = if matches!(value, YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::Float(_)) { raw } else { "" };
    YamlNode { span, raw: raw.to_owned(), value }
}

#[derive(Debug)]
enum RawYaml {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<RawYaml>>),
    Map(Vec<(Spanned<String>, Spanned<RawYaml>)>),
}

impl<'de> Deserialize<'de> for RawYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct YamlVisitor;
        impl<'de> Visitor<'de> for YamlVisitor {
            type Value = RawYaml;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a YAML value")
            }
            fn visit_unit<E>(self) -> Result<RawYaml, E> {
                Ok(RawYaml::Null)
            }
            fn visit_none<E>(self) -> Result<RawYaml, E> {
                Ok(RawYaml::Null)
            }
            fn visit_bool<E>(self, flag: bool) -> Result<RawYaml, E> {
                Ok(RawYaml::Bool(flag))
            }
            fn visit_i64<E>(self, number: i64) -> Result<RawYaml, E> {
                Ok(RawYaml::Int(number.into()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<RawYaml, E> {
                Ok(RawYaml::Int(number.into()))
            }
            fn visit_i128<E>(self, number: i128) -> Result<RawYaml, E> {
                Ok(RawYaml::Int(number))
            }
            fn visit_u128<E>(self, number: u128) -> Result<RawYaml, E> {
                Ok(RawYaml::Int(i128::try_from(number).unwrap_or(i128::MAX)))
            }
            fn visit_f64<E>(self, number: f64) -> Result<RawYaml, E> {
                Ok(RawYaml::Float(number))
            }
            fn visit_str<E>(self, text: &str) -> Result<RawYaml, E> {
                Ok(RawYaml::Text(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<RawYaml, E> {
                Ok(RawYaml::Text(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<RawYaml, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = access.next_element()? {
                    items.push(item);
                }
                Ok(RawYaml::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<RawYaml, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = access.next_entry()? {
                    entries.push(entry);
                }
                Ok(RawYaml::Map(entries))
            }
        }
        deserializer.deserialize_any(YamlVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_spans() {
        let source = "---\r\nü: 1.10\r\nlist: [a, 'ß b']\r\n---\r\n";
        let front = Span::new(5, source.len() - 5);
        let entries = parse(source, front).unwrap();
        let spans: Vec<_> = entries.iter().map(|entry| (entry.key_span.of(source), entry.node.raw.as_str())).collect();
        assert_eq!(spans, [("ü", "1.10"), ("list", "")]);
        assert_eq!(entries[0].node.span.of(source), "1.10");
        let YamlValue::List(items) = &entries[1].node.value else { panic!("not a list") };
        assert_eq!(items[1].span.of(source), "'ß b'");
    }

    #[track_caller]
    fn fails(yaml: &str, line: usize) {
        let problem = parse(yaml, Span::new(0, yaml.len())).unwrap_err();
        assert_eq!((problem.kind, problem.line), (TaskProblemKind::Syntax, line), "{yaml:?}: {}", problem.message);
    }

    #[test]
    fn bombs_and_nonsense_are_refused() {
        fails("a: 1\nb: [", 2);
        fails("a: 1\na: 2\n", 2);
        fails("- a\n", 1);
        fails("just words", 1);
        fails(&format!("a: {}", "[".repeat(60_000)), 1);
        fails(&format!("a: {}{}", "[".repeat(60), "]".repeat(60)), 1);
        fails(&format!("a: [{}]", "x,".repeat(3_000)), 1);
        let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (name, of) in ["b", "c", "d", "e", "f", "g", "h"].into_iter().zip(["a", "b", "c", "d", "e", "f", "g"]) {
            bomb += &[name, ": &", name, " [", &vec![format!("*{of}"); 9].join(","), "]\n"].concat();
        }
        assert_eq!(parse(&bomb, Span::new(0, bomb.len())).map_err(|p| p.kind), Err(TaskProblemKind::Syntax));
    }

    #[test]
    fn empty_is_an_empty_map() {
        for yaml in ["", "\n", "# only a comment\n"] {
            assert_eq!(parse(yaml, Span::new(0, yaml.len())), Ok(vec![]), "{yaml:?}");
        }
    }
}
