"""Plan, adapters layer: today's prices from Azure's retail list, AWS' price list and gpuhunt's catalogue. Reads only."""
