//! Builds the environment variables that point programs in a sandbox at the egress proxy. The same for every backend.

/// The address of the egress proxy, as a sandbox sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressEndpoint {
    /// The URL of the proxy inside the sandbox, without a trailing slash.
    pub url: String,
    /// The bundle of trusted CAs inside the sandbox; `None` leaves that to the sandbox's system.
    pub ca_bundle: Option<String>,
}

/// Both spellings, because some programs read only one of them.
const PROXY_VARS: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// The local machine: servers inside the sandbox are reached directly. Without `[::1]`, at which Python's httpx fails
/// with every request, and with it most clients of models that are written in Python.
const NO_PROXY_HOSTS: &str = "localhost,.localhost,127.0.0.1,127.0.0.0/8,::1,0.0.0.0";

/// Variables that name the CA bundle: OpenSSL, curl, Python, Node, git, cargo, pip, AWS, Deno, Nix.
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
    /// Returns the variables that point programs at the proxy.
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
    fn env_vars_name_the_proxy_and_the_ca_bundle() {
        let endpoint = EgressEndpoint { url: "http://127.0.0.1:3128".into(), ca_bundle: None };
        let vars = endpoint.env_vars();
        let get = |name: &str| vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(get("https_proxy"), Some("http://127.0.0.1:3128"));
        for spelling in ["localhost", "127.0.0.1", "::1", "0.0.0.0"] {
            assert!(get("NO_PROXY").is_some_and(|list| list.split(',').any(|word| word == spelling)), "{spelling}");
        }
        assert!(get("no_proxy").is_some_and(|list| !list.contains('[')));
        assert_eq!(get("SSL_CERT_FILE"), None);
        let trusting = EgressEndpoint { ca_bundle: Some("/x/ca.pem".into()), ..endpoint }.env_vars();
        assert_eq!(trusting.iter().filter(|(_, value)| value == "/x/ca.pem").count(), CA_BUNDLE_VARS.len());
    }
}
