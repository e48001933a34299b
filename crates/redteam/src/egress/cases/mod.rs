//! The attacks on the egress proxy by target, one table per file.

mod budget;
mod credential_leaks;
mod dns;
mod dns_packets;
mod exfiltration_volume;
mod host_spellings;
mod internal_addresses;
mod mitm_ca;
mod model_routes;
mod phantom_credentials;
mod proxy_failures;
mod request_smuggling;
mod unlisted_hosts;

use super::case::EgressCase;

pub(super) const ALL: &[&[EgressCase]] = &[
    unlisted_hosts::CASES,
    internal_addresses::ADDRESSES,
    internal_addresses::NAMES,
    internal_addresses::OTHERS,
    host_spellings::MISSPELT,
    host_spellings::DENIED,
    host_spellings::OTHERS,
    dns::CASES,
    dns_packets::CASES,
    request_smuggling::SMUGGLED,
    request_smuggling::CASES,
    phantom_credentials::WRONG_HOST,
    phantom_credentials::CASES,
    credential_leaks::CASES,
    credential_leaks::REFLECTED,
    model_routes::REFUSED,
    model_routes::CASES,
    mitm_ca::UNTRUSTED,
    mitm_ca::CASES,
    budget::CASES,
    proxy_failures::CASES,
    exfiltration_volume::CASES,
];
