//! Tables of integers of 8 bits, which a scale and a zero point make into numbers.

use posenc_ir::{DType, Use, ValueId};

use crate::detect::context::Context;

/// The integers of a table: `code` stands for `scale · (code − zero)`.
pub(super) struct Codes {
    dtype: DType,
    /// `None` where it was not found, or where features have their own. Weights of rows add up to 1, so that a
    /// mixture of numbers has the code that is the same mixture of codes, whatever the scale.
    scale: Option<f64>,
    zero: f64,
}

impl Codes {
    /// Of a table that is read here.
    pub(super) fn of(context: &Context<'_>, dtype: DType, uses: &[Use]) -> Self {
        let (scale, zero) = match scale(context, uses) {
            Some((scale, zero)) => (Some(scale), zero),
            None => (None, 0.0),
        };
        Self { dtype, scale, zero }
    }

    pub(super) fn has_scale(&self) -> bool {
        self.scale.is_some()
    }

    /// The distance between two numbers.
    pub(super) fn step(&self) -> f64 {
        self.scale.unwrap_or(1.0).abs()
    }

    /// What codes stand for.
    pub(super) fn numbers(&self, codes: Vec<f64>) -> Vec<f64> {
        let scale = self.scale.unwrap_or(1.0);
        let number = |code: f64| scale * (code - self.zero);
        codes.into_iter().map(number).collect()
    }

    /// The codes nearest to numbers.
    ///
    /// # Errors
    /// Where a number is beyond the first or the last code.
    pub(super) fn written(&self, numbers: Vec<f64>) -> Result<Vec<f64>, String> {
        let scale = self.scale.unwrap_or(1.0);
        let [first, last] = match self.dtype {
            DType::U8 => [0.0, f64::from(u8::MAX)],
            _ => [f64::from(i8::MIN), f64::from(i8::MAX)],
        };
        let code = |number: f64| {
            let code = (number / scale + self.zero).round_ties_even();
            if (first..=last).contains(&code) {
                return Ok(code);
            }
            Err(format!(
                "is quantized, and a new row would need the integer {code}, which {} does not have; extend \
                 the model before it is quantized, or choose another way",
                self.dtype
            ))
        };
        numbers.into_iter().map(code).collect()
    }
}

/// The one scale and zero point of a table, read where its rows or the whole table become numbers.
fn scale(context: &Context<'_>, uses: &[Use]) -> Option<(f64, f64)> {
    let graph = context.graph();
    let one = |value: ValueId| {
        let numbers = context.found.trace.get(value).to_f64()?;
        let mut numbers = numbers.iter();
        numbers.next().copied().filter(|_| numbers.next().is_none())
    };
    let mut open = uses.to_vec();
    let mut found = None;
    while let Some(at) = open.pop() {
        let node = graph.node(at.node);
        match node.op() {
            "DequantizeLinear" => {
                let scale = node.input(1).and_then(one)?;
                let zero = node.input(2).map_or(Some(0.0), one)?;
                if found.is_some_and(|other| other != (scale, zero)) {
                    return None;
                }
                found = Some((scale, zero));
            }
            "Gather" | "GatherElements" | "GatherND" | "Identity" | "Reshape" | "Squeeze"
            | "Unsqueeze" | "Expand" | "Transpose" | "Slice"
                if at.slot() == 0 =>
            {
                let outputs = node.outputs().iter().flatten();
                open.extend(outputs.flat_map(|value| graph.uses(*value)).copied());
            }
            _ => return None,
        }
    }
    found
}
