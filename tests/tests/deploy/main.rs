//! The files under deploy/: that they are well-formed, and that what they name exists in the programs.

mod images;
mod manifests;
mod monitoring;
mod support;
