//! Suggests a rule for a refused request, no wider than that request and ready to be pasted into a shell.

use super::rule::PolicyRule;

/// The longest path of a suggested rule: a path that is cut in a message would make a different rule.
const MAX_PATH_BYTES: usize = 200;

/// Returns the rule that allows one request to a host and nothing else of it, if there is such a rule.
///
/// An agent chooses its requests, and the user pastes the suggestion. So a path with any character that has a special
/// meaning in a rule or in a shell, such as `*`, has no suggested rule.
pub fn rule_for_request(authority: &str, method: &str, path: &str) -> Option<PolicyRule> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/@:+,=".contains(&byte);
    if !path.starts_with('/') || path.len() > MAX_PATH_BYTES || !path.bytes().all(plain) {
        return None;
    }
    format!("{} {authority}{path}", method.to_ascii_uppercase()).parse().ok()
}

/// Returns a rule as a shell argument.
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
    fn rules_allow_exactly_one_request() {
        check("x.io", "POST", "/o/r.git/git-receive-pack", Some("POST x.io/o/r.git/git-receive-pack"));
        check("x.io:80", "get", "/a?token=b", Some("GET x.io:80/a"));
        check("x.io", "GET", "/", Some("GET x.io/"));
        // No characters with a special meaning in a rule or in a shell.
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
