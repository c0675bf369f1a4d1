//! Where a stamp is valid: processes with the same boot id and time namespace share CLOCK_MONOTONIC.

use std::{fs, io};

use crate::v1::ClockDomain;

impl ClockDomain {
    /// The domain of this process.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            // A kernel without time namespaces has one clock per boot.
            time_namespace: fs::read_link("/proc/self/ns/time")
                .map(|p| p.to_string_lossy().into_owned())
                .unwrap_or_default(),
        })
    }

    /// Whether stamps of `self` and `other` may be subtracted as they are. An unknown domain is never the same.
    pub fn shares_clock_with(&self, other: &Self) -> bool {
        !self.boot_id.is_empty() && self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shares_its_own_clock() {
        let here = ClockDomain::current().unwrap();
        assert!(here.shares_clock_with(&ClockDomain::current().unwrap()));
    }

    #[test]
    fn unknown_domains_never_share_a_clock() {
        assert!(!ClockDomain::default().shares_clock_with(&ClockDomain::default()));
    }

    #[test]
    fn another_time_namespace_is_another_clock() {
        let here = ClockDomain::current().unwrap();
        let there = ClockDomain { time_namespace: "time:[1]".into(), ..here.clone() };
        assert!(!here.shares_clock_with(&there));
    }
}
