//! What a check on a GPU says when a kernel is wrong, and when it takes the GPU with it.

use super::checks::report::Report;

fn modules() -> impl Iterator<Item = (String, usize)> {
    ["norm", "embed", "sample"].into_iter().map(str::to_owned).zip(0..)
}

#[test]
fn a_wrong_kernel_does_not_keep_the_others_from_being_checked() {
    let check = |module| if module == 1 { Err("row 3: 0.1".to_owned()) } else { Ok(0.5) };
    let report = Report::of(modules(), check, || true);
    let said = report.to_json(&[("gpu", "\"H200\"".to_owned()), ("free_bytes", "null".to_owned())]);
    assert!(!report.is_well());
    let want = "{\n  \"gpu\": \"H200\",\n  \"free_bytes\": null,\n  \"stopped_in\": null,\n  \"modules\": [\n    \
                {\"module\": \"norm\", \"error_part\": 0.5000, \"wrong\": null},\n    \
                {\"module\": \"embed\", \"error_part\": null, \"wrong\": \"row 3: 0.1\"},\n    \
                {\"module\": \"sample\", \"error_part\": 0.5000, \"wrong\": null}\n  ]\n}";
    assert_eq!(said, want);
}

#[test]
fn after_a_kernel_that_brings_the_device_down_it_is_named_and_nothing_more_is_tried() {
    let mut tried = 0;
    let check = |module| {
        tried += 1;
        if module == 1 {
            Err("embed: cuCtxSynchronize: an illegal memory access".to_owned())
        } else {
            Ok(0.5)
        }
    };
    let report = Report::of(modules(), check, || false);
    let said = report.to_json(&[]);
    assert_eq!(tried, 2);
    assert!(!report.is_well());
    assert!(said.contains("\"stopped_in\": \"embed\""), "{said}");
    assert!(said.contains("\"wrong\": \"embed: cuCtxSynchronize: an illegal memory access\""), "{said}");
}

#[test]
fn where_all_is_right_the_report_says_so() {
    assert!(Report::of(modules(), |_| Ok(0.0), || unreachable!("only asked after an error")).is_well());
}
