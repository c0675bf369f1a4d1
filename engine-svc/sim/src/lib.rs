//! The engine's pure parts: step planner, KV accounting and a cost model that runs in virtual time
