//! Adds hosts to a list of the user's `config.toml` and leaves every other byte of it unchanged.

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::change::PolicyList;

/// The file after the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigEdit {
    pub(super) text: String,
    pub(super) added: Vec<String>,
    /// The hosts that were in the list already.
    pub(super) already_present: Vec<String>,
    /// The policy mode that had to be set for the list to take effect.
    pub(super) mode: Option<&'static str>,
}

/// Adds entries to a list; `None` when the file is not TOML or has something other than a list there.
pub(super) fn edit(text: &str, list: PolicyList, hosts: &[String]) -> Option<ConfigEdit> {
    let mut document: DocumentMut = text.parse().ok()?;
    let sandbox = child_table(document.as_table_mut(), "sandbox", false)?;
    let inline = sandbox.1;
    let network = child_table(sandbox.0, "network", inline)?.0;
    let mut mode = None;
    if list == PolicyList::Allowed && network.get("policy").and_then(Item::as_str) == Some("deny") {
        mode = Some("allowlist");
        // Only the value changes; whitespace and comments around it stay.
        let policy = network.get_mut("policy")?.as_value_mut()?;
        let decor = policy.decor().clone();
        *policy = Value::from("allowlist");
        *policy.decor_mut() = decor;
    }
    let entries = network.entry(list.key()).or_insert(Item::Value(Value::Array(Array::new()))).as_array_mut()?;
    let (mut added, mut there) = (Vec::new(), Vec::new());
    for host in hosts {
        if added.contains(host) || there.contains(host) {
            continue;
        }
        if entries.iter().any(|entry| entry.as_str() == Some(host)) {
            there.push(host.clone());
        } else {
            push_entry(entries, host);
            added.push(host.clone());
        }
    }
    Some(ConfigEdit { text: document.to_string(), added, already_present: there, mode })
}

/// Returns a table inside another one, created when it is missing, and whether it is written on one line.
fn child_table<'t>(table: &'t mut dyn TableLike, key: &str, inline: bool) -> Option<(&'t mut dyn TableLike, bool)> {
    let item = table.entry(key).or_insert_with(|| {
        if inline {
            return Item::Value(Value::InlineTable(InlineTable::new()));
        }
        let mut new = Table::new();
        // Implicit, because `[sandbox]` alone would only be an empty section.
        new.set_implicit(true);
        Item::Table(new)
    });
    let inline = item.is_inline_table();
    Some((item.as_table_like_mut()?, inline))
}

/// Adds an entry in the style of the others: on a line of its own where they are.
fn push_entry(entries: &mut Array, host: &str) {
    let mut value = Value::from(host);
    let raw = |text: Option<&toml_edit::RawString>| text.and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    let before = raw(entries.iter().last().and_then(|last| last.decor().prefix()));
    let trailing = raw(Some(entries.trailing()));
    if before.contains('\n') {
        let indent = before.rsplit('\n').next().unwrap_or_default().to_owned();
        // A comment behind the last entry stays behind it.
        let comment = trailing.rsplit_once('\n').map(|(comment, _)| comment).filter(|text| text.contains('#'));
        value.decor_mut().set_prefix(format!("{}\n{indent}", comment.unwrap_or_default()));
        if comment.is_some() {
            entries.set_trailing("\n");
        }
    } else if !entries.is_empty() {
        value.decor_mut().set_prefix(" ");
    }
    entries.push_formatted(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, list: PolicyList, hosts: &[&str], want: Option<&str>) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let edited = edit(text, list, &hosts);
        assert_eq!(edited.as_ref().map(|edited| edited.text.as_str()), want);
        if let Some(edited) = edited {
            // The edit is idempotent.
            let again = edit(&edited.text, list, &hosts).expect("it was edited before");
            assert_eq!((again.text, again.added, again.mode), (edited.text, Vec::new(), None));
        }
    }

    #[test]
    fn added() {
        use PolicyList::{Allowed, Denied};
        check("", Allowed, &["x.io", "x.io"], Some("[sandbox.network]\nallowed = [\"x.io\"]\n"));
        check(
            "# mine\n[model]\ndefault = \"lab\" # cheap\n",
            Denied,
            &["x.io", "*.y.io"],
            Some("# mine\n[model]\ndefault = \"lab\" # cheap\n\n[sandbox.network]\ndenied = [\"x.io\", \"*.y.io\"]\n"),
        );
        check(
            "[sandbox.network]\npolicy = \"deny\" # for now\nallowed = ['a.io'] # one\n",
            Allowed,
            &["x.io"],
            Some("[sandbox.network]\npolicy = \"allowlist\" # for now\nallowed = ['a.io', \"x.io\"] # one\n"),
        );
        check(
            "[sandbox.network]\npolicy = \"deny\"\n",
            Denied,
            &["x.io"],
            Some("[sandbox.network]\npolicy = \"deny\"\ndenied = [\"x.io\"]\n"),
        );
        check(
            "[sandbox]\nnetwork = { policy = \"open\" }\n",
            Denied,
            &["x.io"],
            Some("[sandbox]\nnetwork = { policy = \"open\" , denied = [\"x.io\"] }\n"),
        );
        check(
            "[sandbox.network]\nallowed = [\n  \"a.io\", # first\n  \"b.io\", # second\n]\n",
            Allowed,
            &["x.io", "y.io"],
            Some(
                "[sandbox.network]\nallowed = [\n  \"a.io\", # first\n  \"b.io\", # second\n  \"x.io\",\n  \"y.io\",\n]\n",
            ),
        );
        check("sandbox.network.allowed = []\n", Allowed, &["x.io"], Some("sandbox.network.allowed = [\"x.io\"]\n"));
        check("sandbox = 1\n", Allowed, &["x.io"], None);
        check("[sandbox.network]\nallowed = 'x.io'\n", Allowed, &["x.io"], None);
        check("[", Allowed, &["x.io"], None);
    }
}
