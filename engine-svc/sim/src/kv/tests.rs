use proptest::prelude::*;

use super::*;

const BLOCK: usize = 4;

/// A sequence as the pool sees it: tokens, their hashes, its table.
struct Held {
    tokens: Vec<u32>,
    hashes: Vec<pool::PrefixHash>,
    table: BlockTable,
}

fn compute(pool: &mut KvPool, tokens: Vec<u32>) -> (Held, usize) {
    let mut hashes = pool.prefix_hashes(&tokens);
    let (mut table, filled, _) = pool.take_prefix(&hashes, &tokens);
    assert!(pool.extend(&mut table, tokens.len()));
    pool.publish(&mut table, &mut hashes, &tokens, tokens.len());
    (Held { tokens, hashes, table }, filled)
}

#[test]
fn a_released_prefix_is_found_again() {
    let mut pool = KvPool::new(8, BLOCK);
    let (first, filled) = compute(&mut pool, (0..10).collect());
    assert_eq!(filled, 0);
    let shared = first.table.ids()[..2].to_vec();
    pool.release(first.table);
    assert_eq!((pool.free(), pool.cached()), (8, 2));

    let (second, filled) = compute(&mut pool, (0..8).chain([90, 91]).collect());
    assert_eq!(filled, 8);
    assert_eq!(second.table.ids()[..2], shared);
    pool.check_integrity([&second.table]).unwrap();
}

#[test]
fn a_different_token_early_on_shares_nothing_after_it() {
    let mut pool = KvPool::new(8, BLOCK);
    let (first, _) = compute(&mut pool, vec![1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let (second, filled) = compute(&mut pool, vec![1, 2, 3, 0, 5, 6, 7, 8, 9]);
    assert_eq!(filled, 0);
    pool.check_integrity([&first.table, &second.table]).unwrap();
}

#[test]
fn a_wholly_cached_prompt_writes_its_last_token_into_a_copy() {
    let mut pool = KvPool::new(8, BLOCK);
    let (first, _) = compute(&mut pool, (0..8).collect());
    let (table, filled, copy) = pool.take_prefix(&first.hashes, &first.tokens);
    let copy = copy.expect("the last block is shared");
    assert_eq!(filled, 7, "one token is left to compute, for its logits");
    assert_eq!((copy.from, copy.to), (first.table.ids()[1], table.ids()[1]));
    assert_eq!(first.table.ids()[0], table.ids()[0]);
    pool.check_integrity([&first.table, &table]).unwrap();
}

#[test]
fn without_a_block_for_the_copy_the_last_block_is_computed_again() {
    let mut pool = KvPool::new(2, BLOCK);
    let (first, _) = compute(&mut pool, (0..8).collect());
    let (table, filled, copy) = pool.take_prefix(&first.hashes, &first.tokens);
    assert_eq!((filled, copy), (4, None));
    pool.check_integrity([&first.table, &table]).unwrap();
}

#[test]
fn the_least_recently_released_content_goes_first_and_a_prefix_outlives_its_tail() {
    let mut pool = KvPool::new(4, BLOCK);
    let (old, _) = compute(&mut pool, (0..8).collect());
    let (new, _) = compute(&mut pool, (100..108).collect());
    let (old_hashes, new_hashes) = (old.hashes.clone(), new.hashes.clone());
    pool.release(old.table);
    pool.release(new.table);
    let mut table = BlockTable::default();
    assert!(pool.extend(&mut table, BLOCK));
    assert_eq!(pool.cached_prefix(&old_hashes, &old.tokens), 1);
    assert_eq!(pool.cached_prefix(&new_hashes, &new.tokens), 2);
}

#[test]
fn a_pool_that_runs_dry_says_so_and_changes_nothing() {
    let mut pool = KvPool::new(2, BLOCK);
    let mut table = BlockTable::default();
    assert!(!pool.extend(&mut table, 3 * BLOCK));
    assert!(table.is_empty());
    assert!(pool.extend(&mut table, 2 * BLOCK));
    assert_eq!(pool.free(), 0);
    pool.release(table);
    assert_eq!(pool.free(), 2);
}

#[test]
fn a_table_gives_back_what_lies_behind_its_positions() {
    let mut pool = KvPool::new(4, BLOCK);
    let (mut held, _) = compute(&mut pool, (0..9).collect());
    assert!(pool.extend(&mut held.table, 13));
    pool.shrink(&mut held.table, 9);
    assert_eq!((held.table.len(), pool.free()), (3, 1));
    pool.shrink(&mut held.table, 1);
    assert_eq!(held.table.len(), 2, "what the prefix cache knows stays");
    pool.check_integrity([&held.table]).unwrap();
}

#[test]
fn books_that_do_not_add_up_are_noticed() {
    let mut pool = KvPool::new(4, BLOCK);
    let (held, _) = compute(&mut pool, (0..8).collect());
    assert!(pool.check_integrity([]).is_err(), "a table was forgotten");
    assert!(pool.check_integrity([&held.table, &held.table]).is_err(), "a table counted twice");
}

proptest! {
    /// Sequences over a tiny alphabet come, grow and go in any order: the books always add up, a held block is
    /// never handed out, and what the cache hands out has the content asked for.
    #[test]
    fn the_books_add_up_whatever_happens(ops in prop::collection::vec((0u8..4, 0usize..6, 1usize..20), 1..80)) {
        let mut pool = KvPool::new(12, BLOCK);
        let mut held: Vec<Held> = Vec::new();
        // What each block holds, as a backend would see it written.
        let mut memory = vec![Vec::<u32>::new(); 12];
        for (op, which, len) in ops {
            match op {
                0 | 1 => {
                    let tokens: Vec<u32> = (0..len).map(|i| ((i / 5 + which) % 2) as u32).collect();
                    let mut hashes = pool.prefix_hashes(&tokens);
                    let (mut table, filled, copy) = pool.take_prefix(&hashes, &tokens);
                    prop_assert!(filled < tokens.len());
                    if let Some(copy) = copy {
                        memory[copy.to as usize] = memory[copy.from as usize].clone();
                    }
                    for (block, chunk) in table.ids().iter().zip(tokens[..filled].chunks(BLOCK)) {
                        prop_assert_eq!(&memory[*block as usize][..chunk.len()], chunk);
                    }
                    if pool.extend(&mut table, tokens.len()) {
                        for (i, &token) in tokens.iter().enumerate().skip(filled) {
                            let cells = &mut memory[table.ids()[i / BLOCK] as usize];
                            cells.truncate(i % BLOCK);
                            cells.push(token);
                        }
                        pool.publish(&mut table, &mut hashes, &tokens, tokens.len());
                        held.push(Held { tokens, hashes, table });
                    } else {
                        pool.release(table);
                    }
                }
                2 if !held.is_empty() => {
                    let index = which % held.len();
                    let seq = &mut held[index];
                    seq.tokens.push(1);
                    if pool.extend(&mut seq.table, seq.tokens.len()) {
                        let i = seq.tokens.len() - 1;
                        let cells = &mut memory[seq.table.ids()[i / BLOCK] as usize];
                        cells.truncate(i % BLOCK);
                        cells.push(1);
                        let computed = seq.tokens.len();
                        pool.publish(&mut seq.table, &mut seq.hashes, &seq.tokens, computed);
                    } else {
                        seq.tokens.pop();
                    }
                }
                3 if !held.is_empty() => {
                    let index = which % held.len();
                    pool.release(held.swap_remove(index).table);
                }
                _ => {}
            }
            prop_assert!(pool.check_integrity(held.iter().map(|seq| &seq.table)).is_ok());
            for seq in &held {
                for (block, chunk) in seq.table.ids().iter().zip(seq.tokens.chunks(BLOCK)) {
                    prop_assert_eq!(&memory[*block as usize][..chunk.len()], chunk, "a held block was overwritten");
                }
            }
        }
        for seq in held {
            pool.release(seq.table);
        }
        prop_assert_eq!(pool.free(), 12);
    }
}
