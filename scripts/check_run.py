"""check_run.py run.json: fails when a request failed or TTFT's chain does not close (|unexplained| ≤ 0.1 %)."""

import json
import sys

with open(sys.argv[1]) as file:
    run = json.load(file)

reasons = []
if run["requests"]["failed"]:
    reasons.append(f"{run['requests']['failed']} requests failed: {run['requests']['failed_by_kind']}")
if not run["requests"]["completed"]:
    reasons.append("no request completed")
unexplained = run["unexplained"]["percent_of_ttft"]
if unexplained is None or abs(unexplained) > 0.1:
    reasons.append(f"the chain does not close: unexplained is {unexplained} % of TTFT")
if run["validity"]["verdict"] != "VALID":
    reasons.append("the run is not valid: " + "; ".join(run["validity"]["reasons"]))
for reason in reasons:
    print(reason, file=sys.stderr)
sys.exit(1 if reasons else 0)
