//! Bounded waiting: a test says what it waits for, and fails with that name.

use std::{future::Future, time::Duration};

/// How long anything may take before a test gives up: far above what a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for `future`.
///
/// # Panics
/// When it takes longer than [`PATIENCE`].
pub async fn within_patience<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain for: {what}"),
    }
}

/// Asks `probe` again and again until it gives a value.
///
/// # Panics
/// When it gives none within [`PATIENCE`].
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, probe: impl FnMut() -> F) -> T {
    patiently(what, PATIENCE, probe).await
}

/// The same, for what takes its time.
///
/// # Panics
/// When it gives none within `patience`.
pub async fn patiently<T, F: Future<Output = Option<T>>>(
    what: &str,
    patience: Duration,
    mut probe: impl FnMut() -> F,
) -> T {
    let asked = async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answered = tokio::time::timeout(patience, asked).await;
    answered.unwrap_or_else(|_| panic!("waited {patience:?} in vain for: {what}"))
}
