//! Flags of the sim backend.

use clap::Args;
use firstlight_sim::cost::CostModel;

/// The cost model. The defaults have the shape of a small model on a data-centre GPU.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --backend sim")]
pub struct SimArgs {
    /// Factor on every time; 0 makes forwards free.
    #[arg(long, env = "FIRSTLIGHT_SIM_TIME_SCALE", value_name = "FACTOR", default_value_t = 1.0)]
    pub sim_time_scale: f64,
    /// Fixed cost of a prefill forward.
    #[arg(long, env = "FIRSTLIGHT_SIM_PREFILL_BASE_US", value_name = "US", default_value_t = CostModel::default().prefill_base_us)]
    pub sim_prefill_base_us: f64,
    /// Cost of each chunk of a prompt.
    #[arg(long, env = "FIRSTLIGHT_SIM_PREFILL_ROW_US", value_name = "US", default_value_t = CostModel::default().prefill_row_us)]
    pub sim_prefill_row_us: f64,
    /// Cost of each prompt token.
    #[arg(long, env = "FIRSTLIGHT_SIM_PREFILL_TOKEN_US", value_name = "US", default_value_t = CostModel::default().prefill_token_us)]
    pub sim_prefill_token_us: f64,
    /// Fixed cost of a decode forward.
    #[arg(long, env = "FIRSTLIGHT_SIM_DECODE_BASE_US", value_name = "US", default_value_t = CostModel::default().decode_base_us)]
    pub sim_decode_base_us: f64,
    /// Cost of each decode row, padding included.
    #[arg(long, env = "FIRSTLIGHT_SIM_DECODE_ROW_US", value_name = "US", default_value_t = CostModel::default().decode_row_us)]
    pub sim_decode_row_us: f64,
    /// Cost of each position a token attends to.
    #[arg(long, env = "FIRSTLIGHT_SIM_ATTEND_US", value_name = "US", default_value_t = CostModel::default().prefill_attend_us)]
    pub sim_attend_us: f64,
    /// Sizes that decode forwards are padded to.
    #[arg(long, env = "FIRSTLIGHT_SIM_BUCKETS", value_name = "ROWS,…", value_delimiter = ',', default_values_t = CostModel::default().buckets)]
    pub sim_buckets: Vec<u32>,
    /// Token ids are below this.
    #[arg(long, env = "FIRSTLIGHT_SIM_VOCAB_SIZE", value_name = "N", default_value_t = 49_152)]
    pub sim_vocab_size: usize,
    /// The end-of-sequence id.
    #[arg(long, env = "FIRSTLIGHT_SIM_EOS_ID", value_name = "ID", default_value_t = 2)]
    pub sim_eos_id: u32,
    /// Make one token in N an end-of-sequence, on average; 0: none.
    #[arg(long, env = "FIRSTLIGHT_SIM_EOS_ONE_IN", value_name = "N", default_value_t = 0)]
    pub sim_eos_one_in: u64,
}

impl SimArgs {
    /// The model that they describe.
    pub fn cost(&self) -> CostModel {
        let mut buckets = self.sim_buckets.clone();
        buckets.sort_unstable();
        CostModel {
            prefill_base_us: self.sim_prefill_base_us,
            prefill_row_us: self.sim_prefill_row_us,
            prefill_token_us: self.sim_prefill_token_us,
            decode_base_us: self.sim_decode_base_us,
            decode_row_us: self.sim_decode_row_us,
            prefill_attend_us: self.sim_attend_us,
            decode_attend_us: self.sim_attend_us,
            buckets,
            scale: self.sim_time_scale,
        }
    }
}
