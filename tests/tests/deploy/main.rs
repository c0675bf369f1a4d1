//! The files under deploy/: that they are well-formed, that what they name exists in the programs, and
//! that the programs do what they rely on.

mod dns;
mod fetch;
mod images;
mod manifests;
mod means;
mod monitoring;
mod panels;
mod prometheus;
mod support;
