//! `fair`: between tenants by tokens served, prompt and output (the virtual token counter of Sheng et al.,
//! "Fairness in Serving Large Language Models", OSDI 2024). A tenant that comes back from idleness starts at
//! the least counter of those waiting: it cannot save up, and it is next, or next but for ties. So one
//! tenant's flood delays another's request by at most one round plus the next slot or blocks to free.

use std::collections::BTreeMap;

use super::super::{lanes::Rank, request::Tenant};

/// Tokens served to each tenant.
#[derive(Debug, Default)]
pub(in super::super) struct Served {
    accounts: BTreeMap<Tenant, Account>,
    /// Least counter among tenants that wait; what it last was when none does.
    floor: i64,
    turns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    tokens: i64,
    /// The turn in which it was last admitted: of equal tenants the one served longest ago is next.
    turn: u64,
}

/// Accounts kept before those of idle tenants that have no advantage to remember are dropped.
const KEPT: usize = 4096;

impl Served {
    /// The rank of a tenant's lane.
    pub fn rank(&self, tenant: Tenant) -> Rank {
        let account = self.accounts.get(&tenant).copied().unwrap_or_default();
        (account.tokens, account.turn)
    }

    /// Tenants that wait have at least this counter.
    pub fn raise_floor(&mut self, least: i64) {
        self.floor = self.floor.max(least);
    }

    /// A tenant begins to wait: it is lifted to the floor.
    pub fn lift(&mut self, tenant: Tenant) {
        if self.accounts.len() >= KEPT && !self.accounts.contains_key(&tenant) {
            let floor = self.floor;
            self.accounts.retain(|_, account| account.tokens > floor);
        }
        let account = self.accounts.entry(tenant).or_default();
        account.tokens = account.tokens.max(self.floor);
    }

    /// A tenant was served `tokens`.
    pub fn charge(&mut self, tenant: Tenant, tokens: u32) {
        self.accounts.entry(tenant).or_default().tokens += i64::from(tokens);
    }

    /// A request of the tenant was admitted.
    pub fn take_turn(&mut self, tenant: Tenant) {
        self.turns += 1;
        self.accounts.entry(tenant).or_default().turn = self.turns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_back_from_idleness_has_saved_nothing_up() {
        let mut served = Served::default();
        served.lift(Tenant(1));
        served.charge(Tenant(1), 500);
        served.raise_floor(500);
        served.lift(Tenant(2));
        assert_eq!(served.rank(Tenant(2)).0, 500);
        assert!(served.rank(Tenant(2)) <= served.rank(Tenant(1)));
    }

    #[test]
    fn accounts_of_idle_tenants_do_not_pile_up() {
        let mut served = Served::default();
        for tenant in 0..10 * KEPT as u32 {
            served.lift(Tenant(tenant));
        }
        assert!(served.accounts.len() <= KEPT);
    }
}
