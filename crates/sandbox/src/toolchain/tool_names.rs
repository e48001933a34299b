//! Lists the names that a config may use for toolchains: tools (`nvm`) and languages (`node`), and the usual folders
//! of a tool that is not on the `PATH`.

/// One known toolchain name.
#[derive(Debug)]
pub(super) struct ToolName {
    pub(super) name: &'static str,
    pub(super) language: &'static str,
    /// Directories below the home that would be on the `PATH`; `*` is the newest version.
    pub(super) usual: &'static [&'static str],
}

const fn tool(name: &'static str, language: &'static str, usual: &'static [&'static str]) -> ToolName {
    ToolName { name, language, usual }
}

pub(super) const TOOLS: &[ToolName] = &[
    tool("rustup", "rust", &[".cargo/bin"]),
    tool("nvm", "node", &[".nvm/versions/node/*/bin"]),
    tool(
        "fnm",
        "node",
        &[".local/share/fnm/node-versions/*/installation/bin", ".fnm/node-versions/*/installation/bin"],
    ),
    tool("volta", "node", &[".volta/bin"]),
    tool("n", "node", &["n/bin"]),
    tool("nodenv", "node", &[".nodenv/shims"]),
    tool("pnpm", "node", &[".local/share/pnpm"]),
    tool("pyenv", "python", &[".pyenv/shims"]),
    tool("uv", "python", &[".local/share/uv/python/*/bin"]),
    tool("pipx", "python", &[]),
    tool("conda", "python", &["miniforge3/bin", "miniconda3/bin", "anaconda3/bin", "mambaforge/bin"]),
    tool("goenv", "go", &[".goenv/shims"]),
    tool("go", "go", &["go/bin", "sdk/*/bin"]),
    tool("bun", "bun", &[".bun/bin"]),
    tool("deno", "deno", &[".deno/bin"]),
    tool("mise", "mise", &[".local/share/mise/shims"]),
    tool("asdf", "asdf", &[".asdf/shims"]),
    tool("sdkman", "java", &[".sdkman/candidates/java/current/bin"]),
    tool("rbenv", "ruby", &[".rbenv/shims"]),
    tool("rvm", "ruby", &[".rvm/rubies/*/bin"]),
    tool("ghcup", "haskell", &[".ghcup/bin"]),
    tool("cabal", "haskell", &[".cabal/bin"]),
    tool("dotnet", "dotnet", &[".dotnet"]),
    tool("homebrew", "homebrew", &[".linuxbrew/bin"]),
    tool("nix", "nix", &[".nix-profile/bin"]),
];

/// The program whose presence shows that a language is installed, from whatever source.
const PROGRAMS: &[(&str, &str)] = &[
    ("rust", "cargo"),
    ("node", "node"),
    ("python", "python3"),
    ("go", "go"),
    ("bun", "bun"),
    ("deno", "deno"),
    ("java", "java"),
    ("ruby", "ruby"),
    ("haskell", "ghc"),
    ("dotnet", "dotnet"),
];

/// Returns every name, sorted.
pub(super) fn known() -> Vec<&'static str> {
    let mut words: Vec<&str> = TOOLS.iter().flat_map(|tool| [tool.name, tool.language]).collect();
    words.sort_unstable();
    words.dedup();
    words
}

pub(super) fn is_known(word: &str) -> bool {
    TOOLS.iter().any(|tool| tool.name == word || tool.language == word)
}

pub(super) fn tools(word: &str) -> impl Iterator<Item = &'static ToolName> {
    TOOLS.iter().filter(move |tool| tool.name == word || tool.language == word)
}

pub(super) fn program(language: &str) -> Option<&'static str> {
    PROGRAMS.iter().find(|(known, _)| *known == language).map(|(_, program)| *program)
}

/// Returns the language of a tool that a polyglot manager (mise, asdf) installed.
pub(super) fn language(installed: &str) -> &str {
    match installed {
        "nodejs" => "node",
        "golang" => "go",
        "ghc" => "haskell",
        other => other,
    }
}
