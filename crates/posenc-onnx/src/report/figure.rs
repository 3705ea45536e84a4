//! What encodings compute, as numbers to draw.

use serde::Serialize;

use posenc_encodings::kind::{Kind, Stack};

/// Something to draw of an encoding: lines, or pictures.
///
/// ```
/// # use posenc_onnx::{Model, report::{Quantity, Shape}};
/// let model = Model::open("../../fixtures/mini/alibi/model.onnx")?;
/// let figures = model.figures();
/// let bias = figures.iter().find(|figure| figure.quantity == Quantity::Bias);
/// let Some(Shape::Lines(heads)) = bias.map(|figure| &figure.shape) else { panic!() };
/// let falls = heads[0].points.windows(2).all(|pair| pair[0][1] < pair[1][1]);
/// assert!(falls, "farther keys get less");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The family.
    pub kind: Kind,
    /// The stack; `None` where the model has one.
    pub stack: Option<Stack>,
    /// The layers that see it.
    pub layers: Vec<usize>,
    /// What is drawn.
    pub quantity: Quantity,
    /// Its numbers.
    pub shape: Shape,
    /// How many more heads there are than lines or pictures.
    pub left_out: usize,
    /// The length that a rewrite made the model for, in tokens; `None` where no record names one.
    pub new_length: Option<usize>,
}

/// What a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The wavelength of each pair of features, in tokens, over the index of the pair.
    Wavelength,
    /// `m² Σ cos(f_i d) / pairs` over the distance d, in tokens: the score of a query and a key that are equal, as
    /// a share of that at distance 0 without the factor m.
    Similarity,
    /// The frequency of each pair of features, in radians per token, over the index of the pair.
    Frequency,
    /// `m cos(f_i d)` and `m sin(f_i d)`: a row for each pair i, a column for each distance d, in tokens.
    Rotation,
    /// What is added to the scores over key − query, in tokens. Where a constant for each query makes no
    /// difference, the key at the query's own position gets 0.
    Bias,
    /// What is added to the scores over the offset from query to key in a window, in rows and columns.
    WindowBias,
    /// Rows by position, or in the order in which the graph has those of distances.
    Rows,
    /// Rows by key − query, in tokens.
    DistanceRows,
    /// The cosine of the angle between each two rows.
    RowSimilarity,
    /// The same of patches: a tile for each patch, in the place of the patch, shows all patches in theirs.
    PatchSimilarity,
}

/// The numbers of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Lines in one system of coordinates.
    Lines(Vec<Line>),
    /// Numbers of rows and columns, in one scale.
    Pictures(Vec<Picture>),
}

/// A line with its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Which one it is, as `head 0`; empty where there is one.
    pub name: String,
    /// `[x, y]`, with x rising.
    pub points: Vec<[f64; 2]>,
}

/// Numbers `[rows, columns]`, reduced to at most [`Picture::SIDE`] in each direction by leaving rows and columns out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// Which one it is, as `head 0`; empty where there is one.
    pub name: String,
    /// Rows and columns of the whole.
    pub size: [usize; 2],
    /// What the first row and the first column stand for; each further tile stands for 1 more.
    pub first: [i64; 2],
    /// Rows and columns of a tile: 1 and 1 where each number stands for itself.
    pub tile: [usize; 2],
    /// The numbers, row by row.
    pub numbers: Vec<Vec<f64>>,
}

impl Picture {
    /// The most rows and columns.
    pub const SIDE: usize = 256;

    /// A picture of rows of one width.
    ///
    /// ```
    /// use posenc_onnx::report::Picture;
    ///
    /// let picture = Picture::new([512, 2], |row, column| (row + column) as f64);
    /// assert_eq!((picture.size, picture.numbers.len()), ([512, 2], 256));
    /// assert_eq!(picture.numbers[1], [2.0, 3.0]);
    /// ```
    pub fn new(size: [usize; 2], number: impl Fn(usize, usize) -> f64) -> Self {
        let kept = |count: usize| -> Vec<usize> {
            let shown = count.min(Self::SIDE);
            (0..shown).map(|i| i * count / shown).collect()
        };
        let columns = kept(size[1]);
        let row = |row: usize| columns.iter().map(|column| number(row, *column)).collect();
        Self {
            name: String::new(),
            size,
            first: [0, 0],
            tile: [1, 1],
            numbers: kept(size[0]).into_iter().map(row).collect(),
        }
    }
}
