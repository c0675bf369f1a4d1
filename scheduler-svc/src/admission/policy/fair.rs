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

/// Accounts kept before some are forgotten, and with them what their tenants were served beyond the floor.
const KEPT: usize = 1 << 16;

impl Served {
    /// The rank of a tenant's lane, whose head has that number of arrival.
    pub fn rank(&self, tenant: Tenant, head: u64) -> Rank {
        let account = self.account(tenant);
        (account.tokens, account.turn, head)
    }

    fn account(&self, tenant: Tenant) -> Account {
        self.accounts.get(&tenant).copied().unwrap_or(self.unknown())
    }

    /// Tenants that are not remembered stand at the floor.
    fn unknown(&self) -> Account {
        Account { tokens: self.floor, turn: 0 }
    }

    fn account_mut(&mut self, tenant: Tenant) -> &mut Account {
        let unknown = self.unknown();
        self.accounts.entry(tenant).or_insert(unknown)
    }

    /// Forgets the lower half of the accounts: those at the floor lose nothing by it, and the others gain least.
    fn forget_the_least(&mut self) {
        let mut served: Vec<i64> = self.accounts.values().map(|account| account.tokens).collect();
        let middle = served.len() / 2;
        let (_, least, _) = served.select_nth_unstable(middle);
        let least = self.floor.max(*least);
        self.accounts.retain(|_, account| account.tokens > least);
    }

    /// A tenant begins to wait, beside others of which the first has rank `first`.
    pub fn lift(&mut self, tenant: Tenant, first: Option<Rank>) {
        let last = self.last.map(|tenant| self.account(tenant).tokens);
        self.floor = self.floor.max(first.map(|(least, ..)| least).or(last).unwrap_or(0));
        if self.accounts.len() >= KEPT && !self.accounts.contains_key(&tenant) {
            self.forget_the_least();
        }
        let floor = self.floor;
        let account = self.account_mut(tenant);
        account.tokens = account.tokens.max(floor);
    }

    /// A tenant was served `tokens`.
    pub fn charge(&mut self, tenant: Tenant, tokens: u32) {
        self.account_mut(tenant).tokens += i64::from(tokens);
    }

    /// A request of the tenant was admitted.
    pub fn take_turn(&mut self, tenant: Tenant) {
        self.turns += 1;
        self.account_mut(tenant).turn = self.turns;
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
    fn accounts_do_not_pile_up_even_while_the_floor_stands_still() {
        let mut served = Served::default();
        for tenant in 0..10 * KEPT as u32 {
            // Someone waits at zero all the time, and everyone else is served something and leaves.
            served.lift(Tenant(tenant), Some((0, 0, 0)));
            served.charge(Tenant(tenant), 1 + tenant % 100);
            assert!(served.accounts.len() <= KEPT);
        }
    }

    #[test]
    fn who_was_served_most_is_remembered_longest() {
        let mut served = Served::default();
        served.charge(Tenant(0), 1_000_000);
        for tenant in 1..10 * KEPT as u32 {
            served.lift(Tenant(tenant), Some((0, 0, 0)));
            served.charge(Tenant(tenant), 1 + tenant % 100);
        }
        assert_eq!(served.rank(Tenant(0), 1).0, 1_000_000);
    }

    #[test]
    fn a_tenant_that_is_not_remembered_stands_at_the_floor() {
        let mut served = Served::default();
        served.lift(Tenant(1), Some((500, 0, 0)));
        assert_eq!(served.rank(Tenant(2), 1).0, 500);
        served.charge(Tenant(2), 7);
        assert_eq!(served.rank(Tenant(2), 1).0, 507);
    }
}
