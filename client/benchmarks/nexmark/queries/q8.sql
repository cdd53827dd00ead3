-- Who joined and opened an auction within the same ten seconds?
SELECT DISTINCT p.id, p.name, p.window_start AS starts
FROM person [RANGE 10 SECONDS SLIDE 10 SECONDS] p JOIN auction [RANGE 10 SECONDS SLIDE 10 SECONDS] a ON p.id = a.seller;
