use serde_json::json;

use super::*;
use crate::{join::part_names, report::results::SegmentStats};

fn line(i: usize) -> Map<String, Value> {
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
    put("request_id", json!(format!("r<{i}>")));
    put("submit_start_ns", json!(1_000_000_000_i64 + i as i64 * 5_000_000));
    put("ttft_ms", json!(30.0 + i as f64));
    put("latency_ms", json!(90.0));
    for name in part_names() {
        put(&format!("{name}_ms"), json!(3.0));
    }
    put("cause_max_active_ms", json!(4.0 + i as f64));
    line
}

fn results() -> Results {
    let mut r = Results::default();
    r.run.label = "a <b> & \"c\"".to_owned();
    r.ttft = Percentiles { mean_ms: Some(123.456), n: 300, ..Percentiles::default() };
    r.validity.verdict = "VALID".to_owned();
    for name in part_names() {
        r.segments.insert(name.to_owned(), SegmentStats { share_ms: Some(12.0), ..Default::default() });
    }
    r
}

#[test]
fn the_page_is_one_file_that_loads_nothing() {
    let page = page(&results(), &(0..300).map(line).collect::<Vec<_>>());
    for outside in ["http://", "https://", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<svg").count(), 4);
    assert_eq!(page.matches("<details>").count(), 4, "a table behind every picture");
}

#[test]
fn figures_are_those_of_the_json() {
    let page = page(&results(), &[]);
    assert!(page.contains("<td>123.46</td>") && page.contains("<td>12.00</td>"));
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let page = page(&results(), &[line(0)]);
    assert!(page.contains("a &lt;b&gt; &amp; &quot;c&quot;") && page.contains("r&lt;0&gt;"));
    assert!(!page.contains("<b> &"));
}

#[test]
fn every_tag_is_closed() {
    let page = page(&results(), &(0..20).map(line).collect::<Vec<_>>());
    for tag in ["svg", "table", "details", "ul", "tr", "p", "rect", "section", "dl", "div", "span", "body"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}
