//! What a person is offered when something was refused: a rule no wider than what was asked for, as it can be pasted.

use super::rule::PolicyRule;

/// The longest path of such a rule: one that is cut on its way to a person would be another rule.
const MAX_PATH_BYTES: usize = 200;

/// Returns the rule that allows one request to a host and nothing else of it, where a rule can say that.
///
/// An agent chooses what it asks for, and a person pastes the answer: a path with anything in it that a rule or a shell
/// reads as more than itself, such as `*`, has no such rule.
pub fn rule_for_request(authority: &str, method: &str, path: &str) -> Option<PolicyRule> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/@:+,=".contains(&byte);
    if !path.starts_with('/') || path.len() > MAX_PATH_BYTES || !path.bytes().all(plain) {
        return None;
    }
    format!("{} {authority}{path}", method.to_ascii_uppercase()).parse().ok()
}

/// Returns a rule as it stands in a command line.
pub fn shell_argument(rule: &str) -> String {
    if rule.contains([' ', '*', '[']) { format!("'{rule}'") } else { rule.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(authority: &str, method: &str, path: &str, want: Option<&str>) {
        let got = rule_for_request(authority, method, path).map(|rule| rule.to_string());
        assert_eq!(got.as_deref(), want, "{method} {authority}{path}");
    }

    #[test]
    fn one_request() {
        check("x.io", "POST", "/o/r.git/git-receive-pack", Some("POST x.io/o/r.git/git-receive-pack"));
        check("x.io:80", "get", "/a?token=b", Some("GET x.io:80/a"));
        check("x.io", "GET", "/", Some("GET x.io/"));
        // Nothing that means more than it says, to us or to a shell.
        for path in ["/*", "/a/*", "/a/../b", "//a", "/%61", "/a'b", "/$HOME", "/`id`", "/a;b", "/a b", "", "a"] {
            check("x.io", "GET", path, None);
        }
        check("x.io", "PROPFIND", "/a", None);
        check("npm", "GET", "/a", None);
        check("x.io", "GET", &format!("/{}", "a".repeat(MAX_PATH_BYTES)), None);
    }

    #[test]
    fn arguments() {
        for (rule, want) in [("x.io", "x.io"), ("GET x.io/a", "'GET x.io/a'"), ("[::1]:80", "'[::1]:80'")] {
            assert_eq!(shell_argument(rule), want);
        }
    }
}
