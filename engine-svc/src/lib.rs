//! Firstlight engine: token ids in, token ids out, over one Attach stream per scheduler
