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
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    within_patience(what, async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}
