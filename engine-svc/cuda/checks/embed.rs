//! Embeddings: exact, from the token that the host gives or that the forward before has sampled.

use firstlight_cuda::arguments::{DevicePtr, Embed};
use firstlight_cuda::launch::Launch;

use super::Checked;
use super::numbers::{Random, widen};
use crate::platform::{Buf, Kernels};

const VOCABULARY: usize = 11;
const CONTEXT: usize = 9;

pub fn check(kernels: &Kernels) -> Checked {
    let number = kernels.module().number;
    let mut random = Random::new(6);
    for (rows, width, learned) in [(1, 2, false), (6, 768, true), (4, 514, false), (9, 64, true)] {
        let tokens_table = random.normals(number, VOCABULARY * width);
        let positions_table = random.normals(number, CONTEXT * width);
        let sampled: Vec<i32> = (0..4).map(|_| random.between(0, VOCABULARY - 1) as i32).collect();
        let sources: Vec<i32> =
            (0..rows).map(|_| random.between(0, 5) as i32 - 2).map(|s| s.max(-1)).collect();
        // A row whose token comes from the device has nothing valid from the host.
        let tokens: Vec<i32> = sources
            .iter()
            .map(|&source| if source < 0 { random.between(0, VOCABULARY - 1) as i32 } else { i32::MAX })
            .collect();
        let positions: Vec<i32> = (0..rows).map(|_| random.between(0, CONTEXT - 1) as i32).collect();
        for seed in 0..3 {
            let low = seed == 0;
            let token_table = Buf::input(&tokens_table, "token table", low);
            let position_table = Buf::input(&positions_table, "position table", low);
            let tokens_in = Buf::input(&tokens, "tokens", low);
            let sources_in = Buf::input(&sources, "sources", low);
            let sampled_in = Buf::input(&sampled, "sampled", low);
            let positions_in = Buf::input(&positions, "positions", low);
            let x = Buf::<f32>::output(rows * width, "x");
            let arguments = Embed {
                x: x.device(),
                token_table: token_table.device(),
                position_table: if learned { position_table.device() } else { DevicePtr::NULL },
                tokens: tokens_in.device(),
                sources: sources_in.device(),
                sampled: sampled_in.device(),
                positions: positions_in.device(),
                width: width as i32,
                reserved: 0,
            };
            kernels.launch(&Launch::embed(rows), &arguments, seed)?;
            for (i, &got) in x.read().iter().enumerate() {
                let (row, column) = (i / width, i % width);
                let token = if sources[row] < 0 { tokens[row] } else { sampled[sources[row] as usize] };
                let mut want = widen(number, tokens_table[token as usize * width + column]) as f32;
                if learned {
                    want += widen(number, positions_table[positions[row] as usize * width + column]) as f32;
                }
                if got != want {
                    return Err(format!("row {row}, column {column} of {width}: {got} instead of {want}"));
                }
            }
        }
    }
    Ok(0.0)
}
