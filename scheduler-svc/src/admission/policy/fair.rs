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
    /// Least counter among tenants that waited when the latest began to; of the last one served when none did.
    floor: i64,
    last: Option<Tenant>,
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
    /// The rank of a tenant's lane, whose head has that number of arrival.
    pub fn rank(&self, tenant: Tenant, head: u64) -> Rank {
        let account = self.account(tenant);
        (account.tokens, account.turn, head)
    }

    fn account(&self, tenant: Tenant) -> Account {
        self.accounts.get(&tenant).copied().unwrap_or_default()
    }

    /// A tenant begins to wait, beside others of which the first has rank `first`.
    pub fn lift(&mut self, tenant: Tenant, first: Option<Rank>) {
        let last = self.last.map(|tenant| self.account(tenant).tokens);
        self.floor = self.floor.max(first.map(|(least, ..)| least).or(last).unwrap_or(0));
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
        self.last = Some(tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_back_from_idleness_has_saved_nothing_up() {
        let mut served = Served::default();
        served.lift(Tenant(1), None);
        served.charge(Tenant(1), 500);
        served.take_turn(Tenant(1));
        served.lift(Tenant(2), Some(served.rank(Tenant(1), 1)));
        assert_eq!(served.rank(Tenant(2), 2).0, 500);
        assert!(served.rank(Tenant(2), 2) <= served.rank(Tenant(1), 1));
    }

    #[test]
    fn a_tenant_that_comes_when_none_waits_starts_where_the_last_one_served_stands() {
        let mut served = Served::default();
        served.lift(Tenant(1), None);
        served.charge(Tenant(1), 500);
        served.take_turn(Tenant(1));
        served.lift(Tenant(2), None);
        assert_eq!(served.rank(Tenant(2), 2).0, 500);
    }

    #[test]
    fn accounts_of_idle_tenants_do_not_pile_up() {
        let mut served = Served::default();
        for tenant in 0..10 * KEPT as u32 {
            served.lift(Tenant(tenant), None);
        }
        assert!(served.accounts.len() <= KEPT);
    }
}
