//! Inspects a shell command statically: whether it can fail, and which files and programs it names.
//!
//! This is not a shell parser. It knows quotes and the operators between commands, which is enough for warnings.

/// One simple command: its words, unquoted.
type CommandWords = Vec<String>;

/// The operator that joins a command to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandJoin {
    First,
    Then,
    And,
    Or,
    Pipe,
}

/// Returns whether the command succeeds whatever the code does.
pub(super) fn cannot_fail(command: &str) -> bool {
    let parts = split(command);
    let Some((join, last)) = parts.last() else { return true };
    let harmless = |words: &CommandWords| always_succeeds(words);
    // `x || true`, `x; true` and `x | cat` hide the result of `x`.
    (matches!(join, CommandJoin::Or | CommandJoin::Then) && harmless(last))
        || parts.iter().all(|(_, words)| harmless(words))
}

fn always_succeeds(words: &CommandWords) -> bool {
    let Some(first) = words.first() else { return true };
    match first.rsplit('/').next().unwrap_or("") {
        "true" | ":" | "echo" | "printf" | "sleep" | "pwd" => true,
        "exit" => words.get(1).is_none_or(|code| code == "0"),
        _ => false,
    }
}

/// Returns the programs a command starts by name.
pub(super) fn programs(command: &str) -> Vec<String> {
    split(command).into_iter().filter_map(|(_, words)| words.into_iter().find(|word| !is_assignment(word))).collect()
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// Returns the words that name a file of the repository, as paths from its root.
pub(super) fn files(command: &str) -> Vec<String> {
    split(command).into_iter().flat_map(|(_, words)| words).filter_map(|word| repo_path(&word)).collect()
}

fn repo_path(word: &str) -> Option<String> {
    const KNOWN_EXTENSIONS: &[&str] = &[
        "bash", "c", "cfg", "cjs", "cpp", "css", "csv", "go", "h", "html", "ini", "java", "js", "json", "jsx", "kt",
        "lua", "md", "mjs", "php", "pl", "py", "rb", "rs", "scala", "sh", "sql", "swift", "toml", "ts", "tsx", "txt",
        "xml", "yaml", "yml",
    ];
    let strange =
        |c: char| c.is_control() || matches!(c, '*' | '?' | '[' | '{' | '$' | '`' | '~' | '=' | '@' | '<' | '>' | '(');
    let word = word.split(':').next().unwrap_or("").trim_start_matches("./");
    if word.is_empty()
        || word.len() > 300
        || word.starts_with(['-', '/'])
        || word.contains(strange)
        || word.contains("..")
    {
        return None;
    }
    let (folder, name) = word.rsplit_once('/').unwrap_or(("", word));
    let (stem, extension) = name.rsplit_once('.')?;
    let plausible = (1..=5).contains(&extension.len())
        && extension.bytes().all(|b| b.is_ascii_alphanumeric())
        && extension.bytes().any(|b| b.is_ascii_alphabetic());
    // Without a folder, `com.example.App` and `v1.x` look like files too.
    let known = KNOWN_EXTENSIONS.contains(&extension) && !stem.is_empty();
    (plausible && (known || !folder.is_empty())).then(|| word.to_owned())
}

/// Splits a command line into simple commands and each of them into words.
fn split(command: &str) -> Vec<(CommandJoin, CommandWords)> {
    let mut parts = vec![(CommandJoin::First, CommandWords::new())];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars().peekable();
    let end_word = |word: &mut Option<String>, parts: &mut Vec<(CommandJoin, CommandWords)>| {
        if let (Some(word), Some((_, words))) = (word.take(), parts.last_mut()) {
            words.push(word);
        }
    };
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some('"') | None, '\\') => {
                if let Some(next) = chars.next().filter(|next| *next != '\n') {
                    word.get_or_insert_default().push(next);
                }
            }
            (None, ';' | '\n' | '&' | '|') => {
                end_word(&mut word, &mut parts);
                let doubled = chars.next_if_eq(&c).is_some();
                let join = match (c, doubled) {
                    ('&', true) => CommandJoin::And,
                    ('|', true) => CommandJoin::Or,
                    ('|', false) => CommandJoin::Pipe,
                    _ => CommandJoin::Then,
                };
                parts.push((join, CommandWords::new()));
            }
            (None, c) if c.is_whitespace() => end_word(&mut word, &mut parts),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut word, &mut parts);
    parts.retain(|(_, words)| !words.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_cannot_fail() {
        for (command, want) in [
            ("true", true),
            ("/bin/true", true),
            (":", true),
            ("exit 0", true),
            ("exit 1", false),
            ("echo 'a && b'", true),
            ("echo ok; exit", true),
            ("npm test || true", true),
            ("npm test; true", true),
            ("npm test && echo ok", false),
            ("echo x | grep x", false),
            ("npm test", false),
            ("true && npm test", false),
            ("", true),
            ("# nothing \"", false),
        ] {
            assert_eq!(cannot_fail(command), want, "{command:?}");
        }
    }

    #[test]
    fn named_programs_and_files() {
        for (command, want) in [
            ("node scripts/verify-foo.js --fast", vec!["scripts/verify-foo.js"]),
            ("pytest 'tests/test_a.py::test_x' -q", vec!["tests/test_a.py"]),
            ("./run.sh && cat ./out/a.bin", vec!["run.sh", "out/a.bin"]),
            ("curl https://example.com/a.json", vec![]),
            ("java com.example.App 1.2.3 /etc/passwd ../x.py src/*.js $X/a.js", vec![]),
            ("docker run ghcr.io/o/x:latest", vec![]),
            ("go test ./...", vec![]),
            ("X=a.js npm --config=b.json run lint", vec![]),
        ] {
            assert_eq!(files(command), want, "{command:?}");
        }
        assert_eq!(programs("A=1 npm test && (cd x; 'my tool' | jq .)"), ["npm", "(cd", "my tool", "jq"]);
    }
}
