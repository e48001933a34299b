//! What programs in a sandbox are told about the way out. The same for every backend.

/// Where a sandbox finds the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressEndpoint {
    /// The address of the proxy inside the sandbox, without a slash at its end.
    pub url: String,
    /// A file inside the sandbox with everybody whose certificates are to be believed; `None` leaves that to the system.
    pub ca_bundle: Option<String>,
}

/// Programs read either spelling, and some only one.
const PROXY_VARS: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Every way to write this machine. What runs in the sandbox is not outside of it.
const NO_PROXY_HOSTS: &str = "localhost,.localhost,127.0.0.1,127.0.0.0/8,::1,[::1],0.0.0.0";

/// Variables by which programs are told whom to believe: OpenSSL, curl, Python, Node, git, cargo, pip, AWS, Deno, Nix.
const CA_BUNDLE_VARS: [&str; 10] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
    "NIX_SSL_CERT_FILE",
];

impl EgressEndpoint {
    /// Returns the variables that lead programs to the way out.
    pub fn env_vars(&self) -> Vec<(String, String)> {
        let mut all: Vec<(&str, &str)> = PROXY_VARS.map(|name| (name, self.url.as_str())).into();
        all.extend([("NO_PROXY", NO_PROXY_HOSTS), ("no_proxy", NO_PROXY_HOSTS), ("NODE_USE_ENV_PROXY", "1")]);
        if let Some(file) = &self.ca_bundle {
            all.extend(CA_BUNDLE_VARS.map(|name| (name, file.as_str())));
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told() {
        let door = EgressEndpoint { url: "http://127.0.0.1:3128".into(), ca_bundle: None };
        let told = door.env_vars();
        let get = |name: &str| told.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(get("https_proxy"), Some("http://127.0.0.1:3128"));
        for spelling in ["localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0"] {
            assert!(get("NO_PROXY").is_some_and(|list| list.split(',').any(|word| word == spelling)), "{spelling}");
        }
        assert_eq!(get("SSL_CERT_FILE"), None);
        let trusting = EgressEndpoint { ca_bundle: Some("/x/ca.pem".into()), ..door }.env_vars();
        assert_eq!(trusting.iter().filter(|(_, value)| value == "/x/ca.pem").count(), CA_BUNDLE_VARS.len());
    }
}
