//! Metrics of tenants: a series for each that the operator names, one for all others. Clients choose `x-tenant`
//! freely, so what they send must not become labels.

use metrics::{Counter, Histogram, counter, histogram};

use crate::admission::Tenant;

/// The label of tenants that were not named.
const OTHERS: &str = "other";

/// Handles to the metrics of one tenant.
pub struct TenantMetrics {
    /// Requests queued.
    pub queued: Counter,
    /// Tokens received for it.
    pub output_tokens: Counter,
    /// Segment `queue_wait`, observed at the first token.
    pub queue_wait: Histogram,
}

/// All tenants.
pub struct Tenants {
    named: Vec<(Tenant, TenantMetrics)>,
    others: TenantMetrics,
}

impl Tenants {
    /// Registers the series of the tenants of these names, and that of all others.
    pub fn new(names: &[String]) -> Self {
        let named = names.iter().map(|name| (Tenant::named(name), TenantMetrics::new(name)));
        Self { named: named.collect(), others: TenantMetrics::new(OTHERS) }
    }

    /// The series that `tenant` counts in.
    pub fn of(&self, tenant: Tenant) -> &TenantMetrics {
        self.named.iter().find(|(named, _)| *named == tenant).map_or(&self.others, |(_, metrics)| metrics)
    }
}

impl TenantMetrics {
    fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            queued: counter!("firstlight_tenant_requests_total", "tenant" => name.clone()),
            output_tokens: counter!("firstlight_tenant_output_tokens_total", "tenant" => name.clone()),
            queue_wait: histogram!("firstlight_tenant_queue_wait_seconds", "tenant" => name),
        }
    }
}
