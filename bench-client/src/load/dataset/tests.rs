use super::{
    lengths::{Lengths, made_up},
    *,
};

const MOONCAKE: &str = include_str!("../../../tests/data/mooncake_conversation.jsonl");
const AZURE: &str = include_str!("../../../tests/data/azure_code.csv");
const SHAREGPT: &str = include_str!("../../../tests/data/sharegpt_format.json");
const BURSTGPT: &str = include_str!("../../../tests/data/burstgpt_format.csv");
const AS_IT_IS: Fit = Fit { length_scale: 1.0, max_input: None, max_output: None, time_scale: 1.0 };

fn prompt(d: &Dataset, pass: usize, index: usize) -> Vec<u32> {
    match d.ask(pass, index, 49_152, 64).prompt {
        Prompt::Ids(ids) => ids,
        Prompt::Text(text) => panic!("{text} is text"),
    }
}

#[test]
fn mooncake_times_are_ms_and_its_equal_hashes_are_equal_tokens() {
    let rows = traces::mooncake(MOONCAKE).unwrap();
    assert_eq!(rows.len(), 60);
    assert!(rows.is_sorted_by_key(|r| r.at_ns) && rows[0].at_ns == Some(0));
    let blocks = |row: &Row| match &row.input {
        Input::Blocks { tokens, ids, .. } => (*tokens, ids.clone()),
        _ => panic!("no blocks"),
    };
    let (a, b) = (0..60)
        .flat_map(|a| (a + 1..60).map(move |b| (a, b)))
        .find(|&(a, b)| blocks(&rows[a]).1[0] == blocks(&rows[b]).1[0])
        .expect("the slice holds a shared prefix");
    let ((long, ids), (_, other)) = (blocks(&rows[a]), blocks(&rows[b]));
    assert_eq!(ids.len(), long.div_ceil(512));
    let common = ids.iter().zip(&other).take_while(|(x, y)| x == y).count();
    let dataset = Dataset::new(rows, AS_IT_IS).unwrap();
    let (first, second) = (prompt(&dataset, 0, a), prompt(&dataset, 0, b));
    assert_eq!(first.len(), long);
    let shared = first.iter().zip(&second).take_while(|(x, y)| x == y).count();
    assert!(
        shared >= (common * 512).min(first.len()).min(second.len()),
        "{shared} tokens of {common} blocks"
    );
    assert_ne!(prompt(&dataset, 1, a)[..16], first[..16], "a warm-up must not warm the run's prefixes");
}

#[test]
fn azure_dates_become_times_from_the_first_row() {
    let rows = traces::azure(AZURE).unwrap();
    assert_eq!(rows.len(), 40);
    assert_eq!(rows[0].at_ns, Some(0));
    let second = AZURE.lines().nth(2).unwrap();
    let digits = |line: &str| line[17..27].parse::<f64>().unwrap();
    let gap = digits(second) - digits(AZURE.lines().nth(1).unwrap());
    assert_eq!(rows[1].at_ns.unwrap() / 100, (gap * 1e7).round() as i64);
}

#[test]
fn burstgpt_columns_are_found_by_name_and_failed_requests_left_out() {
    let rows = traces::burstgpt(BURSTGPT).unwrap();
    let read: Vec<_> = rows.iter().map(|r| (r.at_ns.unwrap() / 1_000_000_000, r.input.clone())).collect();
    assert_eq!(read, [(0, Input::Tokens(472)), (40, Input::Tokens(1087)), (113, Input::Tokens(417))]);
    assert!(traces::burstgpt("a,b\n1,2").unwrap_err().to_string().contains("Timestamp"));
}

#[test]
fn every_human_turn_asks_with_the_conversation_so_far() {
    let rows = sharegpt::rows(SHAREGPT).unwrap();
    let texts: Vec<&str> =
        rows.iter().map(|r| if let Input::Text(t) = &r.input { t.as_str() } else { "" }).collect();
    let turns = SHAREGPT.matches("\"human\"").count();
    assert_eq!(texts.len(), turns);
    assert!(texts.windows(2).any(|w| w[1].starts_with(w[0])), "a later turn holds the earlier ones");
    assert!(sharegpt::rows("{}").is_err());
}

#[test]
fn caps_and_scales_are_kept_and_told() {
    let fit = Fit { length_scale: 0.1, max_input: Some(300), max_output: Some(8), time_scale: 0.5 };
    let rows = traces::mooncake(MOONCAKE).unwrap();
    let last = rows.last().unwrap().at_ns.unwrap();
    let dataset = Dataset::new(rows, fit).unwrap();
    for i in 0..60 {
        assert!(prompt(&dataset, 0, i).len() <= 300 && dataset.ask(0, i, 49_152, 64).max_new_tokens <= 8);
    }
    assert_eq!(dataset.times(60).unwrap().last(), Some(&(last / 2)));
    for said in ["lengths × 0.1", "times × 0.5", "prompts cut to 300 tokens", "outputs cut to 8 tokens"] {
        assert!(dataset.cut.contains(said), "{}", dataset.cut);
    }
}

#[test]
fn made_up_prompts_have_their_lengths_and_known_ids() {
    let rows = made_up(50, Lengths::Uniform(10, 20), Some(Lengths::Fixed(4)), None, 1);
    let dataset = Dataset::new(rows, AS_IT_IS).unwrap();
    let prompts: std::collections::HashSet<Vec<u32>> = (0..50).map(|i| prompt(&dataset, 0, i)).collect();
    assert_eq!(prompts.len(), 50);
    assert!(
        prompts
            .iter()
            .all(|p| (10..=20).contains(&p.len()) && p.iter().all(|&id| (256..49_152).contains(&id)))
    );
}

#[test]
fn shared_prefixes_are_shared_and_the_rest_is_not() {
    let rows = made_up(40, Lengths::Fixed(10), None, Some((2, 32)), 1);
    let dataset = Dataset::new(rows, AS_IT_IS).unwrap();
    let prompts: Vec<Vec<u32>> = (0..40).map(|i| prompt(&dataset, 0, i)).collect();
    assert!(prompts.iter().all(|p| p.len() == 42));
    let prefixes: std::collections::HashSet<&[u32]> = prompts.iter().map(|p| &p[..32]).collect();
    let rests: std::collections::HashSet<&[u32]> = prompts.iter().map(|p| &p[32..]).collect();
    assert_eq!((prefixes.len(), rests.len()), (2, 40));
}

#[test]
fn a_length_is_written_in_one_of_three_ways() {
    assert_eq!("512".parse(), Ok(Lengths::Fixed(512)));
    assert_eq!("100..200".parse(), Ok(Lengths::Uniform(100, 200)));
    assert_eq!("lognormal:300,0.8".parse(), Ok(Lengths::Lognormal { median: 300.0, sigma: 0.8 }));
    for wrong in ["0", "200..100", "lognormal:300", "many"] {
        assert!(wrong.parse::<Lengths>().is_err(), "{wrong}");
    }
}
