//! The admission core through its public face.

/// Engines that drain under load.
mod drains;
/// The core once more, slow and plain.
mod model;
/// Promises that hold for any traffic.
mod properties;
/// The core against the model.
mod reference;
/// Short stories, one promise each.
mod scenarios;
/// Hours of traffic in virtual time.
mod simulation;
/// Engines and arrivals in virtual time.
mod world;
