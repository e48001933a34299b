//! Parses HTTP/1 as strictly as possible, so that no two parsers can understand the same bytes differently.

pub(crate) mod request_head;
pub(crate) mod strict_http1;
