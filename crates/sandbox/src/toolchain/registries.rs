//! Passes on the addresses of registries and mirrors, without which a host behind one cannot build. They are the only
//! part of settings files with possible tokens that reaches the sandbox.
//!
//! The files themselves are never shown. An address is passed on if it is only an address: a plain scheme and host,
//! no user, no query, and no part that looks like a token. What cannot be parsed with certainty counts as not set.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ralph_core::redact::Redactor;

use super::fs_probe;
use super::setup_builder::ToolchainPlan;

/// One `key = "text"` of a TOML file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TomlSetting {
    pub(super) table: Vec<String>,
    pub(super) key: String,
    pub(super) value: String,
}

/// Variables that hold only addresses, with the toolchain names they belong to.
const VARIABLES: &[(&str, &str)] = &[
    ("rust", "RUSTUP_DIST_SERVER"),
    ("rust", "RUSTUP_UPDATE_ROOT"),
    ("go", "GOPROXY"),
    ("python", "PIP_INDEX_URL"),
    ("python", "UV_DEFAULT_INDEX"),
    ("node", "npm_config_registry"),
];

/// Passes on the host's registry and mirror settings.
pub(super) fn forward_registries(plan: &mut ToolchainPlan<'_>) {
    for (word, variable) in VARIABLES {
        if let Some(value) = plan.host.text_var(variable).filter(|_| plan.wants(&[word])) {
            forward_variable(plan, variable, &value, "the environment");
        }
    }
    let home = plan.home.named.clone();
    if plan.wants(&["node"]) && plan.host.text_var("npm_config_registry").is_none() {
        let file = plan.host.dir_var("NPM_CONFIG_USERCONFIG").unwrap_or_else(|| home.join(".npmrc"));
        if let Some(value) = ini_setting(&file, "", "registry") {
            forward_variable(plan, "npm_config_registry", &value, &file.display().to_string());
        }
    }
    if plan.wants(&["python"]) && plan.host.text_var("PIP_INDEX_URL").is_none() {
        let mut files = vec![home.join(".config/pip/pip.conf"), home.join(".pip/pip.conf")];
        files.extend(plan.host.dir_var("PIP_CONFIG_FILE"));
        let configured = files.iter().find_map(|file| Some((file, ini_setting(file, "global", "index-url")?)));
        if let Some((file, value)) = configured {
            forward_variable(plan, "PIP_INDEX_URL", &value, &file.display().to_string());
        }
    }
    if plan.wants(&["rust"]) {
        let root = plan.roots(&["CARGO_HOME"], &[".cargo"]).into_iter().next();
        if let Some(root) = root {
            forward_cargo_config(plan, &root);
        }
    }
}

fn forward_variable(plan: &mut ToolchainPlan<'_>, variable: &str, value: &str, whence: &str) {
    let parts = value.split([',', '|']).map(str::trim);
    if parts.clone().all(|part| ["direct", "off"].contains(&part) || is_plain_address(part)) {
        plan.note(&format!("`{variable}` is `{value}`, as in {whence}: the sandbox must be allowed to reach it"));
        plan.set_env(variable, value);
    } else {
        plan.note(&format!("`{variable}` is not passed on from {whence}: it is more than a plain address"));
    }
}

fn forward_cargo_config(plan: &mut ToolchainPlan<'_>, root: &Path) {
    let Some(file) = ["config.toml", "config"].map(|name| root.join(name)).into_iter().find(|file| file.is_file())
    else {
        return;
    };
    let (text, left_out) = cargo_config(&fs_probe::text(&file).unwrap_or_default());
    for name in left_out {
        plan.note(&format!("the registry `{name}` of {} is left out: it has no plain address", file.display()));
    }
    if !text.is_empty() {
        plan.note(&format!("the registries of {} are known inside, and nothing else of it", file.display()));
        plan.add_file(".cargo/config.toml", text);
    }
}

/// Returns a config with only the sources and registries of another, and the names of those that were left out.
fn cargo_config(text: &str) -> (String, Vec<String>) {
    let mut tables: BTreeMap<(String, String), Vec<(&'static str, String)>> = BTreeMap::new();
    let mut replaced = Vec::new();
    let mut left_out = Vec::new();
    for pair in toml_settings(text) {
        let [kind, name] = pair.table.as_slice() else { continue };
        if !is_bare_key(name) {
            continue;
        }
        let key = match (kind.as_str(), pair.key.as_str()) {
            ("source", "replace-with") => {
                replaced.push((name.clone(), pair.value));
                continue;
            }
            ("source", "registry") => "registry",
            ("registries", "index") => "index",
            ("source", "directory" | "local-registry" | "git") => {
                left_out.push(name.clone());
                continue;
            }
            _ => continue,
        };
        if is_plain_address(&pair.value) {
            tables.entry((kind.clone(), name.clone())).or_default().push((key, pair.value));
        } else {
            left_out.push(name.clone());
        }
    }
    // A source must not be replaced by one that was left out.
    for (name, by) in replaced {
        if tables.keys().any(|(_, known)| *known == by) {
            tables.entry(("source".to_owned(), name)).or_default().push(("replace-with", by));
        }
    }
    let mut out = String::new();
    for ((kind, name), settings) in tables {
        let _ = writeln!(out, "[{kind}.{name}]");
        for (key, value) in settings {
            let _ = writeln!(out, "{key} = \"{value}\"");
        }
    }
    (out, left_out)
}

/// Returns the settings of a TOML file whose value is one plain string; the rest is skipped.
pub(super) fn toml_settings(text: &str) -> Vec<TomlSetting> {
    // Inside a multi-line string anything may look like a setting.
    if text.contains("\"\"\"") || text.contains("'''") {
        return Vec::new();
    }
    let mut pairs = Vec::new();
    let mut table = Some(Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            let inner = line.strip_prefix('[').and_then(|line| line.split_once(']'));
            let inner = inner.filter(|(_, after)| is_blank(after));
            table = inner.and_then(|(name, _)| split_dotted_key(name));
            continue;
        }
        let Some((Some(names), value)) =
            line.split_once('=').map(|(key, value)| (split_dotted_key(key), quoted_string(value.trim())))
        else {
            continue;
        };
        let (Some(value), Some(table), Some((key, path))) = (value, &table, names.split_last()) else { continue };
        let table = table.iter().chain(path).cloned().collect();
        pairs.push(TomlSetting { table, key: key.clone(), value: value.to_owned() });
    }
    pairs
}

/// Splits `source.crates-io` and `source."crates.io"`.
fn split_dotted_key(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    loop {
        let (name, after) = match rest.chars().next()? {
            quote @ ('"' | '\'') => rest.get(1..)?.split_once(quote)?,
            _ => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        names.push(name.trim().to_owned());
        rest = after.trim_start();
        match rest.strip_prefix('.') {
            Some(next) => rest = next.trim_start(),
            None => return rest.is_empty().then_some(names),
        }
    }
}

fn quoted_string(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let (value, after) = text.get(1..)?.split_once(quote)?;
    (is_blank(after) && !value.contains('\\')).then_some(value)
}

fn is_blank(rest: &str) -> bool {
    rest.trim_start().is_empty() || rest.trim_start().starts_with('#')
}

/// Returns a setting of an INI-like file, as written by pip and npm.
fn ini_setting(file: &Path, section: &str, key: &str) -> Option<String> {
    let text = fs_probe::text(file)?;
    let mut here = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            here = name.trim_end_matches(']').trim();
        } else if let Some((name, value)) = line.split_once('=')
            && here == section
            && name.trim().replace('_', "-") == key
        {
            return Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    None
}

fn is_bare_key(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// Returns whether this is an address and nothing else.
fn is_plain_address(text: &str) -> bool {
    let text = text.strip_prefix("sparse+").unwrap_or(text);
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else { return false };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~:/+".contains(c);
    let mut parts = rest.split('/');
    let host = parts.next().is_some_and(|host| host.starts_with(|c: char| c.is_ascii_alphanumeric()));
    host && rest.chars().all(allowed) && !parts.any(looks_random) && Redactor::new([]).find(text).is_empty()
}

/// Returns whether a part of a path looks like a token: some registries take their token in the path.
fn looks_random(part: &str) -> bool {
    let digits = part.chars().filter(char::is_ascii_digit).count();
    let letters = part.chars().filter(char::is_ascii_alphabetic).count();
    part.len() >= 12 && digits >= 3 && letters >= 3 && !part.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_passed_on() {
        let check = |text: &str, want: bool| assert_eq!(is_plain_address(text), want, "{text}");
        check("https://registry.npmmirror.com", true);
        check("https://mirrors.example.org/crates.io-index", true);
        check("sparse+https://mirrors.example.org:8443/index/", true);
        check("http://10.0.0.1:4873/", true);
        check("https://user:word@example.org/", false);
        check("https://token@example.org/", false);
        check("https://example.org/?key=1", false);
        check("https://example.org/a%20b", false);
        check("https://dl.example.io/Ab3dEf6hIj9kLmN0/org/repo/", false);
        check("https://example.org/ghp_0123456789abcdefghijABCDEFGHIJ012345/x", false);
        check("file:///home/u/mirror", false);
        check("https:///x", false);
        check("https://", false);
        check("https://x\"\nkey = \"", false);
        check("", false);
    }

    #[test]
    fn simple_toml_is_read_and_the_rest_is_skipped() {
        let check = |text: &str, want: &[(&str, &str, &str)]| {
            let got: Vec<_> =
                toml_settings(text).into_iter().map(|pair| (pair.table.join("/"), pair.key, pair.value)).collect();
            let want: Vec<_> =
                want.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect();
            assert_eq!(got, want, "{text}");
        };
        check("a = \"1\"\n[b.c] # x\nd = 'e' # f\n", &[("", "a", "1"), ("b/c", "d", "e")]);
        check("[source.\"x.y\"]\nregistry = \"r\"", &[("source/x.y", "registry", "r")]);
        check("tools.node = \"20\"", &[("tools", "node", "20")]);
        check("a = [\n\"x\",\n]\nb = { c = \"d\" }\ne = 5", &[]);
        check("a = \"\"\"\n[source.x]\nregistry = \"r\"\n\"\"\"", &[]);
        check("[[a]]\nb = \"c\"\n[d]\ne = \"f\"", &[("d", "e", "f")]);
        check("a = \"b\\\"c\"", &[]);
        check("é = \"ü\"\n\"\n'\n[\n[]\n=\n= \"x\"", &[("", "é", "ü")]);
    }

    #[test]
    fn only_the_registries_of_a_cargo_config_are_kept() {
        let (text, left_out) = cargo_config(
            "[source.crates-io]\nreplace-with = \"mirror\"\n\
             [source.mirror]\nregistry = \"sparse+https://mirror.example.org/\"\n\
             [registries.work]\nindex = \"https://u:p@work.example.org/\"\ntoken = \"abc\"\n\
             [source.git]\nreplace-with = \"work\"\n\
             [registry]\ntoken = \"abc\"\n[http]\nproxy = \"u:p@host\"\n[build]\nrustc-wrapper = \"/x\"\n",
        );
        let want = "[source.crates-io]\nreplace-with = \"mirror\"\n\
                    [source.mirror]\nregistry = \"sparse+https://mirror.example.org/\"\n";
        assert_eq!((text.as_str(), left_out), (want, vec!["work".to_owned()]));
        assert_eq!(cargo_config("[net]\noffline = true\n"), (String::new(), vec![]));
    }

    #[test]
    fn an_arbitrary_config_yields_only_plain_settings() {
        let pieces = [
            "[source.a]\n",
            "[registries.b]\n",
            "registry = ",
            "index = ",
            "replace-with = ",
            "token = ",
            "\"https://x/\"\n",
            "\"https://u:p@x/\"\n",
            "'a'\n",
            "\n",
            "\"",
            "'",
            "]",
            "[",
            "#",
            "\\",
            "é",
            ".",
            "\0",
        ];
        let mut lines = 0;
        for seed in 0..5_000 {
            let mut dice = crate::toolchain::tests::random_homes::SeededRng(seed);
            let text: String = (0..12).map(|_| dice.pick(&pieces)).collect();
            let (config, _) = cargo_config(&text);
            for line in config.lines() {
                let plain = line == "registry = \"https://x/\""
                    || line == "index = \"https://x/\""
                    || line.starts_with("replace-with = ")
                    || line.starts_with('[');
                assert!(plain && !line.contains('@'), "{text:?} gave {line:?}");
                lines += 1;
            }
        }
        assert!(lines > 10, "{lines}");
    }
}
