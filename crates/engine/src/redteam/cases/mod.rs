//! The attacks by what they go for, each file a table.

mod addresses;
mod authority;
mod budget;
mod credentials;
mod entries;
mod failures;
mod leaks;
mod names;
mod outflow;
mod packets;
mod requests;
mod routes;
mod spellings;

use super::case::Case;

pub(super) const ALL: &[&[Case]] = &[
    entries::CASES,
    addresses::ADDRESSES,
    addresses::NAMES,
    addresses::OTHERS,
    spellings::SPELT,
    spellings::DENIED,
    spellings::OTHERS,
    names::CASES,
    packets::CASES,
    requests::SMUGGLED,
    requests::CASES,
    credentials::ASTRAY,
    credentials::CASES,
    leaks::CASES,
    leaks::REFLECTED,
    routes::REFUSED,
    routes::CASES,
    authority::UNBELIEVED,
    authority::CASES,
    budget::CASES,
    failures::CASES,
    outflow::CASES,
];
