-- case: C30
CREATE STREAM s ("fooå" TEXT, "字段1" INT);
SELECT "fooå", "字段1", CHAR_LENGTH("fooå") AS length FROM s WHERE "fooå" LIKE '%测%' OR "字段1" > 1;
