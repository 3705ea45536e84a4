//! The table as comma-separated values, with every digit.

use super::frequencies::Table;

/// A heading and one line per pair; what has no value is empty, the wavelength of a pair that does not rotate `inf`.
pub(super) fn csv(table: &Table) -> String {
    let mut text =
        "pair,plain_inv_freq,inv_freq,ratio,wavelength,turns,turns_at_length,attention_factor\n"
            .to_owned();
    for row in &table.rows {
        let turns = row.rotations.map_or_else(String::new, |t| t.to_string());
        text += &format!(
            "{},{},{},{},{},{turns},{},{}\n",
            row.pair,
            row.plain,
            row.inv_freq,
            row.ratio,
            row.wavelength,
            row.rotations_at_length,
            row.attention_factor,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::*;

    #[test]
    fn every_number_is_read_back_to_the_bit() {
        let table = table("--scale linear --rotary-dim 6 --factor 3 --length 100").unwrap();
        let text = csv(&table);
        let mut lines = text.lines();
        let columns = lines.next().unwrap().split(',').count();
        for (line, row) in lines.by_ref().zip(&table.rows) {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), columns);
            assert_eq!(cells[2].parse(), Ok(row.inv_freq));
            assert_eq!(cells[5], "", "no original length was given");
        }
        assert_eq!(text.lines().count(), 4);
    }
}
