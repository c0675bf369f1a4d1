//! Where a stamp is valid: processes with the same boot id and time namespace share CLOCK_MONOTONIC.

use std::{fs, io};

use crate::{
    clock::{Clock, Drift},
    v1::ClockDomain,
};

impl ClockDomain {
    /// Where stamps of this process's `clock` are valid.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn of(clock: &Clock) -> io::Result<Self> {
        // A kernel without time namespaces has one clock per boot.
        let namespace = fs::read_link("/proc/self/ns/time").map(|p| p.to_string_lossy().into_owned());
        let mut time_namespace = namespace.unwrap_or_default();
        if clock.drift() != Drift::default() {
            // A scaled clock is not the kernel's: others must measure it like a stranger's.
            time_namespace += &format!(" {} ppm fast", clock.drift());
        }
        Ok(Self {
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            time_namespace,
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
        let here = ClockDomain::of(&Clock::new()).unwrap();
        assert!(here.shares_clock_with(&ClockDomain::of(&Clock::new()).unwrap()));
    }

    #[test]
    fn unknown_domains_never_share_a_clock() {
        assert!(!ClockDomain::default().shares_clock_with(&ClockDomain::default()));
    }

    #[test]
    fn another_time_namespace_is_another_clock() {
        let here = ClockDomain::of(&Clock::new()).unwrap();
        let there = ClockDomain { time_namespace: "time:[1]".into(), ..here.clone() };
        assert!(!here.shares_clock_with(&there));
    }
    #[test]
    fn a_drifting_clock_is_nobody_elses() {
        let drifting = Clock::with_drift("50".parse().unwrap());
        let here = ClockDomain::of(&Clock::new()).unwrap();
        assert!(!here.shares_clock_with(&ClockDomain::of(&drifting).unwrap()));
    }
}
