//! Firstlight bench-client: makes load, joins the spans by request id, prints where TTFT goes
