//! Prepares base images for sandboxes from files that are already on this machine.
//!
//! An [`ImageReference`] names an OCI image layout, a `docker save` archive or a directory; [`ImageStore::prepare`]
//! turns it into a directory that can be the root of a sandbox. Images are unpacked once, as the invoking user, into
//! a folder named after their digest; every byte is checked against the digests in the image. The content of an image
//! is hostile: an entry that would reach outside makes the whole image refused, and nothing of it is kept.
//!
//! Not here: pulling from a registry (nothing in this module opens a connection), running anything, and the overlay
//! that makes the tree writable for one sandbox.

#[doc(hidden)]
pub mod build;
mod config;
mod decompress;
mod digest;
mod disk_usage;
mod entry_path;
mod error;
mod image_description;
mod layer;
mod limits;
mod lock;
mod manifest;
mod oci_json;
mod pax_header;
mod reference;
mod rootfs;
mod source;
mod store;
mod tar_reader;
mod tree;

#[cfg(test)]
mod tests;

pub use config::ImageConfig;
pub use error::ImageError;
pub use layer::unpack_layer;
pub use limits::ImageLimits;
pub use reference::ImageReference;
pub use store::{ImageRootfs, ImageStore, StoredImage};
